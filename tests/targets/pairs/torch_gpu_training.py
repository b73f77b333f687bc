"""Training on a GPU.
The faults, one at a time: the loss of each step is kept, losses are kept with their graphs since nothing calls
backward on them, the page-locked memory of each batch is kept.

torch_gpu_training.py leak|ok SEED losses|noback|pinned
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

fault = sys.argv[3] if sys.argv[1] == "leak" else "none"
torch.manual_seed(int(sys.argv[2]))
torch.set_num_threads(1)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(256, 512), nn.Linear(512, 8)

    def forward(self, x):
        x = torch.relu(self.hidden(x))  # allocates: losses, noback
        return self.out(x)  # allocates: losses, noback


class Loader:
    """Brings batches to the GPU by way of page-locked memory."""

    def __init__(self):
        self.staged = []

    def load(self, *shape):
        batch = torch.rand(shape).pin_memory()  # allocates: pinned
        if fault == "pinned":
            self.staged.append(batch)  # keeps: pinned
        return batch.to("cuda", non_blocking=True)


class Trainer:
    def __init__(self):
        self.model, self.loader = Regressor().cuda(), Loader()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.losses, self.checks = [], []

    def loss(self):
        x, y = self.loader.load(64, 256), self.loader.load(64, 8)
        return F.mse_loss(self.model(x), y)  # allocates: losses, noback

    def step(self):
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss if fault == "losses" else loss.item())  # keeps: losses

    def check(self):
        loss = self.loss()
        self.checks.append(loss if fault == "noback" else loss.item())  # keeps: noback


trainer = Trainer()
step = 0
while True:
    trainer.step()
    if step % 5 == 0:
        trainer.check()
    step += 1
    if step == 200:
        print("training", flush=True)
    time.sleep(0.01)
