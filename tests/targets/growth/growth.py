"""As growth.c, in Python.

growth.py SCENARIO SECONDS SEED
"""
import collections
import functools
import gc
import math
import multiprocessing
import os
import random
import sys
import time

scenario, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
start = time.monotonic()


def elapsed():
    return time.monotonic() - start


def steps():
    """About every 10 ms until the time is over, some ordinary work done."""
    while elapsed() < seconds:
        [str(i) * 3 for i in range(200)]
        yield
        time.sleep(random.uniform(0.008, 0.012))


class Node:
    def __init__(self, size):
        self.payload = bytearray(size)


def grow_list(kept, size):
    kept.append("x" * size)


def leak_list():
    kept, size = [], random.randint(600, 4000)
    for _ in steps():
        for _ in range(random.randint(2, 8)):
            grow_list(kept, size)


class Service:
    """Makes answers in one place and keeps them in another."""

    def __init__(self, keeps):
        self.keeps, self.history = keeps, []

    def grow_answer(self, size):
        return "x" * size

    def log(self, answer):
        if self.keeps:
            self.history.append(answer)

    def handle(self, size):
        self.log(self.grow_answer(size))


def serve(keeps):
    service, size = Service(keeps), random.randint(600, 4000)
    for _ in steps():
        for _ in range(random.randint(2, 8)):
            service.handle(size)


def leak_service():
    serve(True)


def service():
    serve(False)


def grow_small(kept):
    kept.append((len(kept), str(len(kept))))


def leak_small():
    """Objects of Python's own allocator."""
    kept, count = [], random.randint(100, 300)
    for _ in steps():
        for _ in range(count):
            grow_small(kept)


def grow_cycle(size):
    a, b = Node(size), Node(size)
    a.other, b.other = b, a


def leak_cycle():
    gc.disable()
    size = random.randint(600, 3000)
    for _ in steps():
        for _ in range(random.randint(1, 5)):
            grow_cycle(size)


def cache_lru():
    """Full at 40 % of the time."""
    cache, limit, size = collections.OrderedDict(), random.randint(1500, 4000), random.randint(600, 2000)
    made = 0
    for _ in steps():
        while made < limit / (0.4 * seconds) * elapsed():
            cache[made] = bytes(size)
            made += 1
            if len(cache) > limit:
                cache.popitem(last=False)


def cache_functools():
    """Full after three quarters of the time."""
    @functools.lru_cache(200)
    def load(key):
        return bytes(100_000)

    asked = 0
    for _ in steps():
        while asked < 200 * elapsed() / (0.75 * seconds):
            load(asked)
            asked += 1


def cache_zipf():
    cache, size = {}, random.randint(1000, 3000)
    for _ in steps():
        for _ in range(300):
            key = int((1 / (1 - random.random())) ** 1.1)
            if key not in cache:
                cache[key] = bytes(size)


def grow_dict(cache, size):
    cache[len(cache)] = bytes(size)


def cache_unbounded():
    cache, size = {}, random.randint(600, 2000)
    for _ in steps():
        for _ in range(5):
            grow_dict(cache, size)


def copy_on_write():
    """The child only reads the parent's objects: their reference counts are on the pages."""
    count = random.randint(300_000, 600_000)
    strings = [f"string {i}" for i in range(count)]
    child = os.fork()
    if child:
        print("started", child, flush=True)
    begun, done = elapsed(), 0
    for _ in steps():
        if child == 0:
            due = int(count * (elapsed() - begun) / (seconds - begun))
            for string in strings[done:due]:
                string.__class__
            done = due
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def grow_table(table, key, size):
    table[key] = bytes(size)


def walk():
    """The size of a table follows a random walk; the oldest or the newest entries go."""
    table, made, size = {}, 0, random.randint(600, 3000)
    start, newest = random.randint(2000, 5000), random.random() < 0.5
    wanted = start
    for _ in steps():
        while len(table) > max(wanted, 0):
            if newest:
                table.popitem()
            else:
                del table[next(iter(table))]
        while len(table) < wanted:
            made += 1
            grow_table(table, made, size)
        wanted += random.gauss(0, start / 200)
    table.clear()


def day():
    """Sessions come and go; how many there are at a time follows the hour of the day."""
    sessions, made, size = {}, 0, random.randint(600, 3000)
    top, phase = random.randint(1000, 3000), random.random()
    period, life = seconds * random.uniform(0.6, 2.5), seconds / 30
    for _ in steps():
        for key in [key for key in sessions if key[0] < elapsed()]:
            del sessions[key]
        wanted = top * (1.1 + math.sin(2 * math.pi * (elapsed() / period + phase)))
        while len(sessions) < wanted:
            made += 1
            grow_table(sessions, (elapsed() + life * random.uniform(0.5, 1.5), made), size)
    sessions.clear()


def cache_random():
    """The requested keys are drawn from a limited set, so that new ones become rare."""
    cache, asked, size = {}, 0, random.randint(600, 2000)
    keys = random.randint(2000, 6000)
    often = keys / (seconds * random.uniform(0.2, 0.8))
    for _ in steps():
        while asked < often * elapsed():
            asked += 1
            key = random.randrange(keys)
            if key not in cache:
                cache[key] = bytes(size)
def grow_read(size):
    return bytes(size)


def work(keeps):
    kept, size = [], random.randint(600, 4000)
    for _ in steps():
        for _ in range(random.randint(2, 8)):
            block = grow_read(size)
            if keeps:
                kept.append(block)
    os._exit(0)


def job(keeps):
    """The workers keep the data that they read, the main process only waits for them."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(keeps,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    print("started", *(worker.pid for worker in workers), flush=True)
    for worker in workers:
        worker.join()


def leak_workers():
    job(True)


def workers():
    job(False)


def flat():
    kept = [bytes(1000) for _ in range(5000)]
    for _ in steps():
        kept[random.randrange(5000)] = bytes(random.randint(900, 1100))


scenarios = {
    "py-leak-list": leak_list,
    "py-leak-service": leak_service,
    "py-service": service,
    "py-leak-small": leak_small,
    "py-leak-cycle": leak_cycle,
    "py-cache-lru": cache_lru,
    "py-cache-functools": cache_functools,
    "py-cache-zipf": cache_zipf,
    "py-cache-unbounded": cache_unbounded,
    "py-copy-on-write": copy_on_write,
    "py-walk": walk,
    "py-day": day,
    "py-cache-random": cache_random,
    "py-leak-workers": leak_workers,
    "py-workers": workers,
    "py-flat": flat,
}
print("running", flush=True)
scenarios[scenario]()
# Without giving everything back: that is not the question.
os._exit(0)
