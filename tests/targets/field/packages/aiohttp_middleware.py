"""A server with a middleware; its clients request pages that do not exist.
The fault is the package's: aiohttp 3.10.10 caches the handlers of each failed match (CVE-2024-52303)."""
import asyncio

from aiohttp import ClientSession, web


@web.middleware
async def timing(request, handler):
    return await handler(request)


async def main():
    server = web.Application(middlewares=[timing])
    server.router.add_get("/", lambda request: web.Response(text="ok"))
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    async with ClientSession() as client:
        count = 0
        while True:
            async with client.get("http://127.0.0.1:%d/%d" % (port, count)) as reply:
                await reply.read()
            count += 1
            if count == 400:
                print("serving", flush=True)
            await asyncio.sleep(0.01)


asyncio.run(main())
