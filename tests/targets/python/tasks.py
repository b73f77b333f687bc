"""Code that waits for other code: threads and coroutines."""

import asyncio
import threading

from truth import called_from, INTERPRETER, note, probe

THREADS = 4
TURNS = 100


def deeper(depth):
    if depth:
        deeper(depth - 1)
    else:
        probe(note())


def at_once(start, number):
    start.wait()
    for _ in range(TURNS):
        deeper(number)


class Worker(threading.Thread):
    def run(self):
        probe(note())


def threads():
    start = threading.Barrier(THREADS)
    workers = [threading.Thread(target=at_once, args=(start, number)) for number in range(THREADS)]
    workers.append(Worker())
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


class Awaited:
    def __await__(self):
        probe(note())
        yield from asyncio.sleep(0).__await__()
        probe(note())


async def awaiting(depth):
    if depth:
        return await awaiting(depth - 1)
    probe(note())
    await asyncio.sleep(0)
    probe(note())


async def counting():
    for index in range(2):
        probe(note())
        yield index
        await asyncio.sleep(0)


class Managed:
    async def __aenter__(self):
        probe(note())
        await asyncio.sleep(0)

    async def __aexit__(self, *exception):
        await asyncio.sleep(0)
        probe(note())


async def main():
    await asyncio.gather(awaiting(0), awaiting(1), awaiting(3))
    await asyncio.create_task(awaiting(2))
    async for _ in counting():
        probe(note())
    [probe(note()) async for _ in counting()]
    {index: await awaiting(0) for index in range(2)}
    async with Managed():
        await Awaited()
    asyncio.get_running_loop().call_soon(from_the_loop)
    await asyncio.wait_for(awaiting(1), 60)
    await asyncio.get_running_loop().run_in_executor(None, deeper, 1)


@called_from(INTERPRETER)
def from_the_loop():
    probe(note())


def coroutines():
    asyncio.run(main())


REPEATED = [coroutines]
ONCE = [threads]
