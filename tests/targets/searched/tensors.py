"""A history of tensors that grows, while two threads replace thousands of tensors a second. Prints what to search for."""

import random
import sys
import threading
import time

import torch

torch.set_num_threads(1)

history = {"losses": []}
churn = [None] * 500


def replace():
    weights = torch.ones(300, requires_grad=True)
    while True:
        at = random.randrange(len(churn))
        loss = (weights * at).sum()
        churn[at] = {"loss": loss, "batch": [torch.ones(200 + at), loss.detach()]}


def keep():
    while True:
        history["losses"].append(torch.ones(2000))
        time.sleep(0.01)


for _ in range(1000):
    history["losses"].append(torch.ones(2000))
sought = [f"--address={tensor.data_ptr():#x}" for tensor in history["losses"][::60]]
for work in (replace, replace, keep):
    threading.Thread(target=work, daemon=True).start()
while None in churn:
    time.sleep(0.01)
print("ready", *sought, flush=True)
sys.stdin.read()
