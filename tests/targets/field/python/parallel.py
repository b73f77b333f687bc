"""Services with threads, coroutines and processes.

parallel.py leak|ok SEED FAULT
"""
import asyncio
import multiprocessing
import queue
import random
import sys
import threading
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


def body():
    return "b" * random.randint(3000, 9000)  # allocates: threads, backlog, local, results, tasks, timers, connections


def serve(handle):
    count = 0
    while True:
        handle()
        count += 1
        if count == 150:
            print("serving", flush=True)
        time.sleep(random.uniform(0.015, 0.025))


def threads():
    """The list of threads keeps those that have ended, with their results."""
    workers = []

    class Worker(threading.Thread):
        def run(self):
            self.result = body()  # allocates: threads

    def handle():
        worker = Worker()
        worker.start()
        worker.join()
        workers.append(worker)
        if not leaks:
            workers.pop()

    serve(handle)


def backlog():
    """The producer of a queue is faster than its consumer."""
    jobs = queue.Queue()

    def consume():
        while True:
            jobs.get()
            time.sleep(0.1 if leaks else 0)

    threading.Thread(target=consume, daemon=True).start()
    serve(lambda: jobs.put(body()))  # allocates: backlog


def local():
    """Threads that live as long as the service keep their sessions in variables of their own."""
    state = threading.local()

    def run():
        state.sessions = []
        while True:
            state.sessions.append(body())  # allocates: local
            if not leaks:
                state.sessions.clear()
            time.sleep(0.05)

    for _ in range(3):
        threading.Thread(target=run, daemon=True).start()
    serve(lambda: None)


def processes():
    """Each worker process keeps the jobs that it has done."""

    def work(jobs):
        done = []
        for job in iter(jobs.get, None):  # allocates: processes
            done.append(job)
            if not leaks:
                done.clear()

    jobs = multiprocessing.Queue()
    for _ in range(2):
        multiprocessing.Process(target=work, args=(jobs,), daemon=True).start()
    serve(lambda: [jobs.put(body()) for _ in range(2)])


def results():
    """The parent of a pool keeps the results of all jobs."""
    pool = multiprocessing.Pool(2)
    results = []

    def handle():
        results.append(pool.apply_async(len, (body(),)))  # allocates: results
        results[-1].wait()
        results[-1].note = body()  # allocates: results
        if not leaks:
            results.clear()

    serve(handle)


async def tasks():
    """Background tasks are kept in a set, as the documentation advises, but never removed."""

    class App:
        def __init__(self):
            self.background = set()

        async def audit(self):
            return body()  # allocates: tasks

        def handle(self):
            task = asyncio.create_task(self.audit())
            self.background.add(task)
            if not leaks:
                task.add_done_callback(self.background.discard)

    app = App()
    for count in range(1 << 40):
        app.handle()
        if count == 150:
            print("serving", flush=True)
        await asyncio.sleep(random.uniform(0.015, 0.025))


async def timers():
    """Each request sets a timer of an hour, and does not cancel it."""
    loop = asyncio.get_running_loop()
    for count in range(1 << 40):
        timer = loop.call_later(3600, len, body())  # allocates: timers
        if not leaks:
            timer.cancel()
        if count == 150:
            print("serving", flush=True)
        await asyncio.sleep(random.uniform(0.015, 0.025))


async def connections():
    """A server keeps the state of each connection in a table by its address."""
    sessions = {}

    async def session(reader, writer):
        line = await reader.readline()
        sessions[writer.get_extra_info("peername")] = {"line": line, "page": body()}  # allocates: connections
        writer.write(b"ok\n")
        await writer.drain()
        writer.close()
        if not leaks:
            del sessions[writer.get_extra_info("peername")]

    server = await asyncio.start_server(session, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for count in range(1 << 40):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        await reader.readline()
        writer.close()
        if count == 150:
            print("serving", flush=True)
        await asyncio.sleep(random.uniform(0.015, 0.025))


FAULTS = {of.__name__: of for of in (threads, backlog, local, processes, results, tasks, timers, connections)}
started = FAULTS[sys.argv[3]]()
if started is not None:
    asyncio.run(started)
