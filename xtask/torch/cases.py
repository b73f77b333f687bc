"""Faulty uses of a device's memory, by name: cases.py CASE SECONDS.

Says "ready" when all permanent memory has been allocated, waits for a line, works, and answers as
JSON with the expected result: the layer, the line, its live bytes, the figures of torch.cuda, and the verdict.
"""

import gc
import json
import sys
import time

import torch

DEVICE = torch.device("cuda")
MIB = 1 << 20
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()).to(DEVICE)
x = torch.randn(64, 256, device=DEVICE)
kept, total = [], torch.zeros((), device=DEVICE)


def outputs():
    """Inference that is recorded for autograd, its outputs kept."""
    kept.append(net(x))  # blame: outputs


def results():
    """A list of results that is never emptied."""
    with torch.no_grad():
        kept.append(net(x))  # blame: results


def graph():
    """A sum of losses kept as tensors: it keeps the graph of each."""
    global total
    out = net(x)  # blame: graph
    total = total + out.sum()


class Node:
    def __init__(self):
        self.me = self
        self.data = torch.zeros(64 << 10, device=DEVICE)  # blame: cycle


def cycle():
    """Reference cycles without a collector of them."""
    gc.disable()
    Node()


def fragmentation():
    """Ever longer blocks: the cached ones are always too short."""
    fragmentation.mib += 2
    torch.empty(fragmentation.mib * MIB, dtype=torch.uint8, device=DEVICE)  # blame: fragmentation


fragmentation.mib = 20


def pinned():
    """Ever more page-locked buffers at a time; PyTorch keeps those that are dropped."""
    pinned.buffers += 1
    [torch.empty(MIB, dtype=torch.uint8, pin_memory=True) for _ in range(pinned.buffers)]  # blame: pinned


pinned.buffers = 0


def steady():
    """Nothing stays."""
    net(x)


# Layer, verdict, steps a second.
CASES = {
    outputs: ("torch-cuda", "gpu-leak", 50),
    results: ("torch-cuda", "gpu-leak", 50),
    graph: ("torch-cuda", "gpu-leak", 50),
    cycle: ("torch-cuda", "gpu-leak", 50),
    fragmentation: ("cuda-runtime", "gpu-cache", 5),
    pinned: ("pinned", "pinned", 5),
    steady: (None, None, 50),
}


def main():
    name, seconds = sys.argv[1], float(sys.argv[2])
    case = next(case for case in CASES if case.__name__ == name)
    layer, verdict, rate = CASES[case]
    with open(__file__) as source:
        lines = [number for number, text in enumerate(source, 1) if text.endswith(f"# blame: {name}\n")]
    steady()
    torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    print("ready", flush=True)
    sys.stdin.readline()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    began = time.monotonic()
    for step in range(int(seconds * rate)):
        case()
        # Paced, because a program that waits for its GPU is too.
        time.sleep(max(0.0, began + step / rate - time.monotonic()))
    held = {
        "torch-cuda": torch.cuda.memory_allocated() - allocated,
        "cuda-runtime": torch.cuda.memory_reserved() - reserved,
        "pinned": (pinned.buffers - 1) * MIB,
    }
    print(json.dumps({
        "layer": layer,
        "line": lines[0] if lines else None,
        "bytes": held.get(layer, 0),
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "verdict": verdict,
    }), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
