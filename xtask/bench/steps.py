"""Target of `cargo xtask bench --torch`: steps of PyTorch on the CPU. Says "ready", waits for a line on stdin, does
its work, prints ms per step (the median, as single steps can be far longer).

    steps.py training|inference small|large COUNT"""

import statistics
import sys
import time

import torch

# Width of a layer, and rows of a batch.
SIZES = {"small": (64, 16), "large": (1024, 256)}
LAYERS = 8
WARM_UP = 3

kind, (width, batch), count = sys.argv[1], SIZES[sys.argv[2]], int(sys.argv[3])
# One more processor is for the collector.
torch.set_num_threads(1)
net = torch.nn.Sequential(*(m for _ in range(LAYERS) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())))
inputs = torch.randn(batch, width)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def training():
    optimizer.zero_grad()
    net(inputs).sum().backward()
    optimizer.step()


@torch.inference_mode()
def inference():
    net(inputs)


step = {"training": training, "inference": inference}[kind]


def timed():
    begin = time.perf_counter()
    step()
    return (time.perf_counter() - begin) * 1000


# Before a tracer attaches: the first step creates threads and buffers.
step()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(WARM_UP):
    step()
print(statistics.median(timed() for _ in range(count)), flush=True)
