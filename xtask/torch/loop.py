"""Target of `cargo xtask bench --torch`: steps of training. Says "ready", waits for a line on stdin,
prints ns per step."""
import sys
import time

import torch

STEPS = 300
net = torch.nn.Sequential(*[m for _ in range(8) for m in (torch.nn.Linear(512, 512), torch.nn.ReLU())])
net.cuda()
inputs = torch.randn(64, 512, device="cuda")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def step():
    optimizer.zero_grad()
    net(inputs).sum().backward()
    optimizer.step()


for _ in range(20):
    step()
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.readline()
begin = time.perf_counter_ns()
for _ in range(STEPS):
    step()
torch.cuda.synchronize()
print((time.perf_counter_ns() - begin) / STEPS)
