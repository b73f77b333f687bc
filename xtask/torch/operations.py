"""Random operations on PyTorch's CUDA allocator, one a line of stdin.

Says "ready" before anything of CUDA is used, for which functions of the driver are in use is
seen while PyTorch asks for them. A line is the number of operations to do next; what
torch.cuda says then is answered as JSON: allocated, reserved and their peaks since "ready".
"""
import functools
import json
import random
import sys

import torch

chosen = random.Random(int(sys.argv[1]))
kept, pinned = [], []


@functools.cache
def stream():
    return torch.cuda.Stream()


def empty(size):
    kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))


def small():
    empty(chosen.randrange(1, 2000))


def middle():
    empty(chosen.randrange(2000, 2 << 20))


def large():
    empty(chosen.randrange(2 << 20, 40 << 20))


def grow():
    if kept:
        at = chosen.randrange(len(kept))
        kept[at] = torch.cat([kept[at], kept[at][:1000]])


def drop():
    if kept:
        del kept[chosen.randrange(len(kept))]


def drop_half():
    del kept[:: 2]


def on_stream():
    with torch.cuda.stream(stream()):
        middle()


def used_by_stream():
    if kept:
        tensor = kept.pop(chosen.randrange(len(kept)))
        tensor.record_stream(stream())


def pin():
    pinned.append(torch.empty(chosen.randrange(1, 100000), dtype=torch.uint8, pin_memory=True))
    if len(pinned) > 10:
        pinned.clear()


def empty_cache():
    torch.cuda.empty_cache()


def too_much():
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except RuntimeError:  # OutOfMemoryError, or the error of the runtime where nothing is cached
        pass
    else:
        sys.exit("an allocation that must fail succeeded")


OPERATIONS = [
    (small, 10), (middle, 8), (large, 3), (grow, 4), (drop, 14), (drop_half, 1), (on_stream, 3),
    (used_by_stream, 2), (pin, 2), (empty_cache, 2), (too_much, 1),
]
print("ready", flush=True)
for line in sys.stdin:
    for operation in chosen.choices(*zip(*OPERATIONS), k=int(line)):
        operation()
    answer = {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
    }
    print(json.dumps(answer), flush=True)
print("done", flush=True)
