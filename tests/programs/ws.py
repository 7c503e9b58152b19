"""Asks a WebSocket echo (RFC 6455) over a raw socket: `ws.py PORT`. Standard library only."""

import base64
import hashlib
import os
import socket
import struct
import sys

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def read_head(stream):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = stream.read(1)
        if not byte:
            sys.exit("the stream ended within the headers")
        head += byte
    return head.decode("latin-1")


def header(head, name):
    for line in head.split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    sys.exit("no header " + name)


def accept_key(key):
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()


def write_frame(sock, opcode, payload, mask):
    frame = bytes([0x80 | opcode])
    bit = 0x80 if mask else 0
    if len(payload) < 126:
        frame += bytes([bit | len(payload)])
    elif len(payload) < 65536:
        frame += bytes([bit | 126]) + struct.pack("!H", len(payload))
    else:
        frame += bytes([bit | 127]) + struct.pack("!Q", len(payload))
    if mask:
        key = os.urandom(4)
        frame += key
        repeated = (key * (len(payload) // 4 + 1))[: len(payload)]
        size = len(payload)
        payload = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
    sock.sendall(frame + payload)


def read_frame(stream):
    first, second = stream.read(2)
    size = second & 0x7F
    if size == 126:
        size = struct.unpack("!H", stream.read(2))[0]
    elif size == 127:
        size = struct.unpack("!Q", stream.read(8))[0]
    key = stream.read(4) if second & 0x80 else None
    payload = stream.read(size)
    if len(payload) != size:
        sys.exit("a frame was cut short")
    if key:
        repeated = (key * (size // 4 + 1))[:size]
        payload = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
    return first & 0x0F, payload


def ask(port):
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    stream = sock.makefile("rb")
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        (
            "GET / HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n\r\n" % key
        ).encode()
    )
    head = read_head(stream)
    assert head.startswith("HTTP/1.1 101 "), head
    assert header(head, "sec-websocket-accept") == accept_key(key)
    assert read_frame(stream) == (1, b"hello")
    count = 0
    for size in list(range(0, 300)) + [65535, 65536, 1 << 20]:
        payload = os.urandom(size)
        write_frame(sock, 2, payload, mask=True)
        assert read_frame(stream) == (2, payload), size
        count += 1
    write_frame(sock, 8, struct.pack("!H", 1000), mask=True)
    assert read_frame(stream)[0] == 8
    assert stream.read(1) == b"", "bytes behind the close frame"
    print("echoed", count)


if __name__ == "__main__":
    ask(int(sys.argv[1]))
