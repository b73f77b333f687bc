"""Objects of several types for so many seconds: a cache that fills and stays, and others that come and go. With `grows`
as the second argument, also those that are kept in a list, and three times as many that native code leaked a reference to.
With `keeps`, only those that are kept, so slowly that Python hardly needs another arena."""

import collections
import ctypes
import sys
import time

seconds, what = float(sys.argv[1]), sys.argv[2]


class Kept:
    __slots__ = ("number", "other")


class Lost:
    __slots__ = ("number", "other")


class Cached:
    __slots__ = ("number",)


class Passing:
    __slots__ = ("number",)


def lose(one):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


kept = []
cache = {}
passing = collections.deque(maxlen=5000)
end = time.monotonic() + seconds
while time.monotonic() < end:
    if len(cache) < 30_000:
        cache.update((len(cache) + n, Cached()) for n in range(500))
    passing.extend(Passing() for _ in range(300))
    if what == "keeps":
        kept.extend(Kept() for _ in range(10))
    if what == "grows":
        kept.extend(Kept() for _ in range(20))
        for _ in range(60):
            lose(Lost())
    time.sleep(0.01)
