"""Random operations on PyTorch's CUDA allocator, one per line of stdin.

Says "ready" before CUDA is used, because memtrace sees which functions of the driver are used
while PyTorch looks them up. A line is the number of operations to do next; the answer has the
figures of torch.cuda as JSON: allocated, reserved and their peaks since "ready", and
whether peaks are kept at all; the requested bytes, the largest free block and the bytes on each
stream, if PyTorch caches itself and has a probe that reports it (since 2.3).
"""
import functools
import json
import os
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


def keeps_peaks():
    """A driver's pool may not."""
    before = torch.cuda.memory_allocated()
    torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    return torch.cuda.max_memory_allocated() > before


def reports_requests():
    since = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 3)
    caching = not os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING")
    return since and caching and torch.cuda.get_allocator_backend() == "native"


def in_blocks():
    """Blocks that wait for a stream count as free, as the allocator reports them and counts them in
    `allocated` (in its own `requested_bytes` they are still there)."""
    numbers = {known.cuda_stream: known.stream_id for known in (stream(), torch.cuda.default_stream())}
    requested = largest = 0
    streams = {}
    for segment in torch.cuda.memory_snapshot():
        number = numbers[segment["stream"]]
        run, end = 0, None
        for block in segment["blocks"]:
            if block["address"] != end:
                run = 0
            end = block["address"] + block["size"]
            if block["state"] == "active_allocated":
                requested += block["requested_size"]
                streams[number] = streams.get(number, 0) + block["size"]
                run = 0
            else:
                run += block["size"]
                largest = max(largest, run)
    return {"requested": requested, "largest_free": largest, "streams": sorted(streams.items())}


print("ready", flush=True)
peaks = None
for line in sys.stdin:
    for operation in chosen.choices(*zip(*OPERATIONS), k=int(line)):
        operation()
    if peaks is None:
        peaks = keeps_peaks()
    answer = {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
        "keeps_peaks": peaks,
        "blocks": in_blocks() if reports_requests() else None,
    }
    print(json.dumps(answer), flush=True)
print("done", flush=True)
