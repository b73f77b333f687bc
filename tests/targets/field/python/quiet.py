"""Programs whose memory grows or moves, and that do not leak.

quiet.py ok SEED PROGRAM
"""
import collections
import functools
import gc
import random
import sys
import time

random.seed(int(sys.argv[2]))


def block(least, most):
    return bytes(random.randint(least, most))


def ring():
    """The last messages, full before anything attaches."""
    last = collections.deque(maxlen=900)
    for _ in range(900):
        last.append(block(10000, 16000))
    return lambda: last.append(block(10000, 16000))


def full_cache():
    """A cache with a limit, full; each request misses."""
    cached = functools.lru_cache(maxsize=2000)(lambda key: block(3000, 6000))
    for key in range(2000):
        cached(key)
    return lambda: cached(random.getrandbits(60))


def bursts():
    """Every few seconds many small objects, which are freed."""
    count = 0

    def handle():
        nonlocal count
        count += 1
        if count % 150 == 0:
            rows = [{"id": row, "name": "name %d" % row} for row in range(30000)]
            rows.sort(key=lambda row: row["name"])

    return handle


def cycles():
    """Reference cycles, freed by the collector from time to time."""

    def handle():
        for _ in range(5):
            node = {"text": "t" * 500}
            node["self"] = node

    return handle


def sessions():
    """Sessions come and go, about as many at any time."""
    open_now = {}
    for number in range(1500):
        open_now[number] = block(2000, 9000)

    def handle():
        for _ in range(2):
            open_now[random.getrandbits(60)] = block(2000, 9000)
            del open_now[random.choice(list(open_now)[:300])]

    return handle


PROGRAMS = {of.__name__: of for of in (ring, full_cache, bursts, cycles, sessions)}
handle = PROGRAMS[sys.argv[3]]()
for count in range(1 << 40):
    handle()
    if count == 450:
        print("serving", flush=True)
    time.sleep(random.uniform(0.015, 0.025))
