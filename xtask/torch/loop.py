"""Target of `cargo xtask bench --torch`: steps of training on "cuda", on the "cpu", or "emulated": on a stand-in
for a GPU, which computes nothing, while another process does the work of a GPU. Says "ready", and to each number
on stdin the median and the sum of the ns that as many steps took, and for "cuda" how many blocks the device's
allocator gave in each (else 0)."""

import statistics
import subprocess
import sys
import time

import torch

WHERE = sys.argv[1]
# One more processor is for the collector.
torch.set_num_threads(1)


def training(device, width, batch):
    layers = [m for _ in range(8) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers).to(device)
    inputs = torch.randn(batch, width, device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        net(inputs).sum().backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


if WHERE == "emulated":
    launch = training("cuda", 1024, 256)
    device = subprocess.Popen(
        [sys.executable, __file__, "cpu"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def await_device():
        if not device.stdout.readline():
            sys.exit("the process that computes has ended")

    await_device()

    def step():
        print(1, file=device.stdin, flush=True)
        launch()
        await_device()

else:
    step = training(WHERE, *((512, 64) if WHERE == "cuda" else (1024, 256)))


def timed():
    begin = time.perf_counter_ns()
    step()
    return time.perf_counter_ns() - begin


def given():
    return torch.cuda.memory_stats()["allocation.all.allocated"] if WHERE == "cuda" else 0


print("ready", flush=True)
for line in sys.stdin:
    count, before = int(line), given()
    times = [timed() for _ in range(count)]
    print(statistics.median(times), sum(times), (given() - before) / count, flush=True)
