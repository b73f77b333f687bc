"""Target of `cargo xtask bench --torch`: steps of training on a device, "cuda" or "cpu". Says "ready",
and to each number on stdin the median and the sum of the ns that as many steps took."""

import statistics
import sys
import time

import torch

DEVICE = sys.argv[1]
# One more processor is for the collector.
torch.set_num_threads(1)
# On a stand-in for a GPU nothing is computed: what is left is the work of the host.
WIDTH, BATCH = (512, 64) if DEVICE == "cuda" else (1024, 256)
layers = [m for _ in range(8) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
net = torch.nn.Sequential(*layers).to(DEVICE)
inputs = torch.randn(BATCH, WIDTH, device=DEVICE)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step():
    optimizer.zero_grad()
    net(inputs).sum().backward()
    optimizer.step()


def finish():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def timed():
    begin = time.perf_counter_ns()
    step()
    finish()
    return time.perf_counter_ns() - begin


print("ready", flush=True)
for line in sys.stdin:
    times = [timed() for _ in range(int(line))]
    print(statistics.median(times), sum(times), flush=True)
