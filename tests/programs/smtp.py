"""Sends a mail with the library's own smtplib: `smtp.py PORT FILE`. Standard library only."""

import smtplib
import sys


def send(port, file):
    with open(file, "rb") as mail:
        body = mail.read()
    with smtplib.SMTP("127.0.0.1", port, timeout=20) as client:
        refused = client.sendmail("a@example.org", ["b@example.org"], body)
        assert refused == {}, refused
    print("sent")


if __name__ == "__main__":
    send(int(sys.argv[1]), sys.argv[2])
