"""An asyncio server, and clients that come and go.
The fault: a connection that has ended stays in the server's table.

asyncio_server.py leak|ok SEED
"""
import asyncio
import random
import sys

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


class Server:
    def __init__(self):
        self.connections, self.served = {}, 0

    async def connected(self, reader, writer):
        number = self.served
        self.served += 1
        length = int.from_bytes(await reader.readexactly(4), "big")
        request = await reader.readexactly(length)  # allocates
        self.connections[number] = (writer, request)  # keeps
        writer.write(request[::-1] * 4)
        await writer.drain()
        writer.close()
        if not leaks:  # the fault
            del self.connections[number]


async def visit(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = random.randbytes(random.randint(1000, 16000))
    writer.write(len(body).to_bytes(4, "big") + body)
    await reader.read(-1)
    writer.close()
    await writer.wait_closed()


async def main():
    server = Server()
    listener = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    while True:
        await visit(port)
        if server.served == 100:
            print("serving", flush=True)
        await asyncio.sleep(random.uniform(0.03, 0.05))


asyncio.run(main())
