"""A service that answers requests, with the faults that Python services have. Without the fault, each
does the same work and forgets it.

service.py leak|ok SEED FAULT
"""
import atexit
import ctypes
import functools
import gc
import io
import logging
import logging.handlers
import mmap
import random
import sqlite3
import sys
import time
import weakref
import xml.etree.ElementTree as ElementTree

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def body(least=3000, most=9000):
    return "b" * random.randint(least, most)  # allocates: bus, finalizers, atexit, handlers, databases, defaults, generators, cycles


class Errors:
    """Keeps the last errors for a page of the administrator; their tracebacks keep the requests."""

    recent = []

    def handle(self):
        payload = bytearray(random.randint(3000, 9000))  # allocates: errors
        try:
            raise ValueError("bad request of %d bytes" % len(payload))
        except ValueError as error:
            self.recent.append(error if leaks else str(error))
            del self.recent[: -100000 if leaks else -100]


class Plans:
    """Plans are cached by an object that is never equal to another."""

    class Query:
        def __init__(self, number):
            self.number = number

    @functools.lru_cache(maxsize=None)
    def plan(self, query):
        return ["step %d of %d" % (step, random.random() * 1e9) for step in range(60)]  # allocates: plans

    def handle(self):
        self.plan(self.Query(1) if leaks else 1)


class Metrics:
    """A counter for each path that a client has requested."""

    counters = {}

    def handle(self):
        for _ in range(20):
            path = "/users/%d/orders" % (random.getrandbits(60) if leaks else random.randint(1, 50))
            labels = (("path", path), ("method", "GET"))  # allocates: metrics
            self.counters[labels] = self.counters.get(labels, 0) + 1


class Bus:
    """Each request subscribes to changes of the configuration."""

    subscribers = []

    class View:
        def __init__(self):
            self.page = body()  # allocates: bus

        def refresh(self):
            pass

    def handle(self):
        view = self.View()
        self.subscribers.append(view.refresh)
        if not leaks:
            self.subscribers.remove(view.refresh)


class Finalizers:
    """A finalizer removes each request's file, but its object lives as long as the service."""

    pool = type("Pool", (), {})()

    def handle(self):
        name = body()  # allocates: finalizers
        done = weakref.finalize(self.pool, len, name)
        if not leaks:
            done.detach()


class AtExit:
    """Each request registers its own clean-up."""

    def handle(self):
        clean = functools.partial(len, body())  # allocates: atexit
        atexit.register(clean)
        if not leaks:
            atexit.unregister(clean)


class Handlers:
    """Each request has a logger with a handler that buffers its records."""

    def __init__(self):
        self.log = logging.getLogger("service")
        self.log.propagate = False

    def handle(self):
        handler = logging.handlers.MemoryHandler(10)  # allocates: handlers
        handler.buffer.append(body(1000, 4000))  # allocates: handlers
        self.log.addHandler(handler)
        if not leaks:
            self.log.removeHandler(handler)
            handler.close()


class Native:
    """A C library returns memory that the caller has to free."""

    def handle(self):
        block = libc.malloc(5000)  # allocates: native
        ctypes.memset(block, 1, 5000)
        if not leaks:
            libc.free(block)


class Uploads:
    """Uploads are written into anonymous mappings, which a list keeps until they are processed."""

    waiting = []

    def handle(self):
        upload = mmap.mmap(-1, 16384)  # allocates: uploads
        upload.write(b"u" * 16384)
        self.waiting.append(upload)
        if not leaks:
            self.waiting.pop().close()


class Databases:
    """Each session has a database in memory."""

    sessions = {}

    def handle(self):
        if random.random() > 0.1:
            return
        database = sqlite3.connect(":memory:", check_same_thread=False)
        database.execute("create table basket (item text)")  # allocates: databases
        database.executemany("insert into basket values (?)", [(body(),) for _ in range(5)])  # allocates: databases
        self.sessions[random.getrandbits(60)] = database
        if not leaks:
            self.sessions.popitem()[1].close()


class Cycles:
    """Requests and their replies refer to each other, and the collector is switched off for speed."""

    class Request:
        def __init__(self):
            self.body = body()  # allocates: cycles
            self.reply = {"request": self}

    def __init__(self):
        if leaks:
            gc.disable()

    def handle(self):
        self.Request()
        if not leaks:
            gc.collect(0)


class Defaults:
    """A default argument that is changed."""

    def visit(self, page, seen=[]):
        seen.append(page)
        if not leaks:
            seen.clear()
        return len(seen)

    def handle(self):
        self.visit(body())  # allocates: defaults


class Generators:
    """Replies are streamed by generators; clients that go away leave theirs suspended in a table."""

    streams = {}

    def stream(self):
        page = body()  # allocates: generators
        yield page[:100]
        yield page[100:]

    def handle(self):
        stream = self.stream()
        next(stream)
        self.streams[id(stream)] = stream
        if not leaks:
            del self.streams[id(stream)]


class Trees:
    """The XML of each order is kept to compare it with the next."""

    history = []

    def handle(self):
        xml = "<order>%s</order>" % "".join("<item n='%d'>text %d</item>" % (n, random.getrandbits(40)) for n in range(25))
        self.history.append(ElementTree.fromstring(xml))  # allocates: trees
        if not leaks:
            self.history.clear()


class Numbers:
    """Response times are kept for a percentile."""

    times = []

    def handle(self):
        for _ in range(120):
            self.times.append(random.getrandbits(48))  # allocates: numbers
        if not leaks:
            self.times.clear()


class Export:
    """Replies are also written to an export that nobody fetches."""

    file = io.BytesIO()

    def handle(self):
        self.file.write(b"e" * random.randint(3000, 9000))  # allocates: export
        if not leaks:
            self.file.seek(0)
            self.file.truncate()


FAULTS = {
    "errors": Errors,
    "plans": Plans,
    "metrics": Metrics,
    "bus": Bus,
    "finalizers": Finalizers,
    "atexit": AtExit,
    "handlers": Handlers,
    "native": Native,
    "uploads": Uploads,
    "databases": Databases,
    "cycles": Cycles,
    "defaults": Defaults,
    "generators": Generators,
    "trees": Trees,
    "numbers": Numbers,
    "export": Export,
}

service = FAULTS[sys.argv[3]]()
catalogue = ["product %d" % number for number in range(100000)]
count = 0
while True:
    service.handle()
    len(" ".join(random.sample(catalogue, 50)))
    count += 1
    if count == 150:
        print("serving", flush=True)
    time.sleep(random.uniform(0.015, 0.025))
