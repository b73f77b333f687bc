"""Python code that native code calls, and native code that allocates by itself."""

import ctypes
import functools
import importlib.util
import itertools
import re
import weakref

from truth import INTERPRETER, PROBE, WARM_UP, called_from, note, note_library, probe

PROCEDURE = ctypes.CFUNCTYPE(None)
COMPARISON = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)
)
own = ctypes.CDLL(PROBE)
libc = ctypes.CDLL(None)


@called_from(INTERPRETER)
def as_key(value):
    probe(note())
    return value


def keys():
    sorted([2, 1], key=as_key)
    [2, 1].sort(key=as_key)
    max([2, 1], key=as_key)
    list(map(as_key, [1, 2]))
    list(filter(as_key, [1, 2]))
    list(itertools.groupby([1, 2], as_key))
    sorted([2, 1], key=functools.cmp_to_key(compared))


@called_from(INTERPRETER)
def compared(left, right):
    probe(note())
    return left - right


@called_from(INTERPRETER)
def replaced(match):
    probe(note())
    return ""


def substitutions():
    re.compile("b").sub(replaced, "abab")


@called_from(INTERPRETER)
def added(left, right):
    probe(note())
    return left + right


@functools.lru_cache(maxsize=1)
@called_from(INTERPRETER)
def cached(value):
    probe(note())


def functional():
    functools.reduce(added, [1, 2, 3])
    functools.partial(added, 1)(2)
    for value in range(3):
        cached(value)


class Referenced:
    pass


@called_from(INTERPRETER)
def at_end(reference):
    probe(note())


def weak_references():
    referenced = Referenced()
    reference = weakref.ref(referenced, at_end)
    del referenced
    del reference


@COMPARISON
@called_from("libc")
def compared_by_libc(left, right):
    probe(note())
    return left[0] - right[0]


@PROCEDURE
@called_from("call_back")
def called_back():
    probe(note())


@PROCEDURE
@called_from("call_back")
def calling_back():
    probe(note())
    own.call_back(called_back)
    probe(note())


def called_from_c():
    libc.qsort((ctypes.c_int * 3)(3, 1, 2), 3, ctypes.sizeof(ctypes.c_int), compared_by_libc)
    own.call_back(called_back)
    own.call_back(calling_back)


def from_a_foreign_thread():
    if not own.call_back_in_thread(calling_back):
        raise RuntimeError("no thread")


def in_sqlite():
    note_library("sqlite3")
    import sqlite3

    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a TEXT)")
    connection.executemany("INSERT INTO t VALUES (?)", [("x" * 5000,)] * 200)
    connection.execute("SELECT a || a FROM t ORDER BY a").fetchall()
    connection.close()


def in_zlib():
    note_library("libz.so")
    import zlib

    zlib.compress(bytes(1 << 20))


def in_openssl():
    import hashlib

    # Ending a process allocates as well.
    note_library("libcrypto", alone=False)
    for _ in range(20):
        hashlib.new("sha256", bytes(1 << 16)).hexdigest()


def in_numpy():
    note_library("_multiarray_umath")
    import numpy

    for _ in range(5):
        numpy.sort(numpy.arange(50_000.0)[::-1], kind="stable").sum()


def libraries():
    uses = [
        (in_sqlite, "sqlite3"),
        (in_zlib, "zlib"),
        (in_openssl, "_hashlib"),
        (in_numpy, "numpy"),
    ]
    for use, module in uses:
        if importlib.util.find_spec(module):
            use()
        else:
            print("skipped:", module, flush=True)


def in_greenlets():
    """The truth about their frames depends on the definition of a caller: they only must not disturb."""
    if not importlib.util.find_spec("greenlet"):
        return
    import greenlet

    def other():
        for _ in range(10):
            probe(WARM_UP)
            main.switch()

    main = greenlet.getcurrent()
    switched = greenlet.greenlet(other)
    for _ in range(10):
        switched.switch()
        probe(note())


REPEATED = [
    keys,
    substitutions,
    functional,
    weak_references,
    called_from_c,
    from_a_foreign_thread,
]
ONCE = [libraries, in_greenlets]
