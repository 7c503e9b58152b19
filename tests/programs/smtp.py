"""A mail server that speaks first, and stays silent until it has: `smtp.py PORT`. Standard library only; the client is
the library's own smtplib: `smtp.py send PORT`."""

import smtplib
import socket
import sys
import threading


def serve_one(sock):
    stream = sock.makefile("rwb")

    def say(line):
        stream.write(line.encode() + b"\r\n")
        stream.flush()

    say("220 test ESMTP ready")
    data = None
    for raw in stream:
        line = raw.rstrip(b"\r\n")
        if data is not None:
            if line == b".":
                say("250 got %d bytes" % sum(len(x) + 2 for x in data))
                data = None
            else:
                data.append(line)
            continue
        verb = line.split(b" ")[0].split(b":")[0].upper()
        if verb == b"DATA":
            data = []
            say("354 go on")
        elif verb == b"QUIT":
            say("221 bye")
            sock.shutdown(socket.SHUT_WR)
            return
        else:
            say("250 ok")


def serve(port):
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=serve_one, args=(sock,), daemon=True).start()


def send(port):
    with smtplib.SMTP("127.0.0.1", port, timeout=20) as client:
        body = "Subject: test\r\n\r\n" + "".join("line %d\r\n" % n for n in range(20000))
        refused = client.sendmail("a@example.org", ["b@example.org"], body)
        assert refused == {}, refused
    print("sent")


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(int(sys.argv[2]))
    else:
        serve(int(sys.argv[1]))
