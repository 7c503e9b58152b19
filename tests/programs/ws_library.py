"""A WebSocket echo and its client with Debian's python3-websockets: `ws_library.py serve PORT` and `ws_library.py ask PORT`."""

import asyncio
import os
import sys

import websockets


async def echo(socket):
    # The server speaks first after the upgrade.
    await socket.send("hello")
    async for message in socket:
        await socket.send(message)


async def serve(port):
    async with websockets.serve(echo, "127.0.0.1", port, max_size=None):
        await asyncio.Future()


async def ask(port):
    count = 0
    async with websockets.connect("ws://127.0.0.1:%d" % port, max_size=None) as socket:
        assert await socket.recv() == "hello"
        for size in list(range(0, 300)) + [65535, 65536, 1 << 20]:
            payload = os.urandom(size)
            await socket.send(payload)
            assert await socket.recv() == payload, size
            count += 1
    print("echoed", count)


if __name__ == "__main__":
    asyncio.run({"serve": serve, "ask": ask}[sys.argv[1]](int(sys.argv[2])))
