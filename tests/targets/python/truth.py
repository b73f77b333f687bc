"""A target's knowledge of its own Python frames.

Written, one JSON line for each chain of frames, to the file that `TRUTH` names:
`tgid`, the `way` of allocating, `bytes` of each block and `count` of blocks (of a library its
name, see `note_library`), and `frames` from the leaf outward: `function`, `file`, `line`, `linetable` (bytes that the code's line table has),
and `caller`, see `called_from`.
"""

import ctypes
import json
import os
import re
import sys
import threading
import time

PROBE = os.environ["PROBE"]
TRUTH = os.environ["TRUTH"]

# Allocates a number of bytes, with the interpreter's lock released and held.
probe = ctypes.CDLL(PROBE).probe
probe_locked = ctypes.PyDLL(PROBE).probe
for function in (probe, probe_locked):
    function.argtypes = [ctypes.c_size_t]
    function.restype = None

# The native code between a frame and that of its caller: the interpreter and the
# modules that belong to it.
INTERPRETER = "interpreter"
# No native code, where a call does not recurse natively.
NOTHING = "nothing" if sys.version_info >= (3, 11) else INTERPRETER

# Bytes of the first chain's blocks; a subinterpreter has another.
first = 20_000
# Bytes of blocks that have no recorded truth.
WARM_UP = 999

lock = threading.RLock()
sizes = {}
counts = {}
libraries = []
callers = {}


def called_from(native):
    """Declares the native code between a function's frame and its caller's: `NOTHING`,
    `INTERPRETER`, or the name of a function or the beginning of a library's name, which is there."""

    def declare(function):
        callers[function.__code__.co_name] = native
        return function

    return declare


def copied(text):
    """Its own copy: the code object's contents must be freed with it."""
    return (text + " ")[:-1]


def frames_of(frame):
    """The true state of a frame and its callers at this moment."""
    chain = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
        caller = callers.get(code.co_name)
        chain.append(
            (copied(name), copied(code.co_filename), frame.f_lineno, len(table), caller)
        )
        frame = frame.f_back
    return tuple(chain)


def counted(key):
    with lock:
        size = sizes.setdefault(key, first + len(sizes))
        counts[size] = counts.get(size, 0) + 1
        return size


def note(outer=()):
    """Notes the caller's chain, which continues by `outer`, and returns the bytes that it is to
    allocate: `probe(note())`, on one line."""
    return counted(("probe", frames_of(sys._getframe(1)) + tuple(outer)))


def note_bare():
    """The same for a block that the interpreter itself allocates."""
    return counted(("bare", frames_of(sys._getframe(1))))


def note_again(size):
    """The same, for a `size` whose chain is known: then the frames are not examined."""
    if size is None:
        return counted(("probe", frames_of(sys._getframe(1))))
    with lock:
        counts[size] += 1
    return size


def note_library(name, alone=True):
    """A library with this in its name allocates below the calling function, and nowhere else if
    `alone`."""
    with lock:
        chain = (name, alone, frames_of(sys._getframe(1)))
        if chain not in libraries:
            libraries.append(chain)


def forget():
    """In a new process: its parent's allocations are not its own."""
    counts.clear()
    libraries.clear()


def write():
    def shown(text):
        return re.sub("[\ud800-\udfff]", "\ufffd", text)

    def frames(chain):
        return [
            {
                "function": shown(function),
                "file": shown(file),
                "line": line,
                "linetable": table,
                "caller": caller,
            }
            for function, file, line, table, caller in chain
        ]

    lines = [
        {"way": way, "bytes": size, "count": counts[size], "frames": frames(chain)}
        for (way, chain), size in sizes.items()
        if size in counts
    ]
    lines += [
        {"way": "library", "library": name, "alone": alone, "frames": frames(chain)}
        for name, alone, chain in libraries
    ]
    text = "".join(json.dumps({"tgid": os.getpid(), **line}) + "\n" for line in lines)
    with open(TRUTH, "a") as file:
        file.write(text)


def warm_up():
    """Allocates until somebody has seen that by its Python frames."""
    go = "%s.go.%d" % (TRUTH, os.getpid())
    while not os.path.exists(go):
        probe(WARM_UP)
        time.sleep(0.01)
