"""Training with PyTorch, with one layer watched.
The faults, one at a time: the hook keeps whatever the layer puts out, losses are kept with the graphs that backward
was told to retain.

torch_finetuning.py leak|ok SEED hook|retain
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

fault = sys.argv[3] if sys.argv[1] == "leak" else "none"
torch.manual_seed(int(sys.argv[2]))
torch.set_num_threads(1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lower, self.upper, self.head = nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 8)

    def forward(self, x):
        x = torch.relu(self.lower(x))  # allocates: retain
        x = torch.tanh(self.upper(x))  # allocates: retain, hook
        return self.head(x)  # allocates: retain


def watch(layer):
    """Returns a function that gives the negative share of the layer's output."""
    seen = []

    def hook(module, inputs, output):
        seen.append(output.detach())  # keeps: hook
        if fault != "hook":
            del seen[:-8]

    layer.register_forward_hook(hook)
    return lambda: sum((output < 0).float().mean().item() for output in seen[-8:]) / 8


class Trainer:
    def __init__(self, model):
        self.model, self.history = model, {"loss": []}
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)  # allocates: retain
        loss.backward(retain_graph=fault == "retain")
        self.optimizer.step()
        self.history["loss"].append(loss if fault == "retain" else loss.item())  # keeps: retain


trainer = Trainer(Tagger())
negative = watch(trainer.model.upper)
step = 0
while True:
    trainer.step(torch.randn(32, 64), torch.randint(8, (32,)))
    step += 1
    if step % 50 == 0:
        negative()
    if step == 200:
        print("training", flush=True)
    time.sleep(0.03)
