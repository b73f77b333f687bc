"""Training with PyTorch.
The faults, one at a time: losses are kept with their graphs, the running sum keeps its graph, outputs of the
validation are kept, a callback holds a batch.

torch_training.py leak|ok SEED losses|total|outputs|closure
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

fault = sys.argv[3] if sys.argv[1] == "leak" else "none"
torch.manual_seed(int(sys.argv[2]))
torch.set_num_threads(1)


class Images(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return (torch.rand(3, 32, 32) - 0.5) / 0.25, i % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(3, 16, 3, padding=1)
        self.b1 = nn.BatchNorm2d(16)
        self.c2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 8 * 8, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)  # allocates: losses, total, outputs
        x = F.max_pool2d(F.relu(self.c2(x)), 2)  # allocates: losses, total, outputs
        return self.fc(x.flatten(1))  # allocates: losses, total, outputs


class Metrics:
    def __init__(self):
        self.losses, self.outputs, self.callbacks, self.sum = [], [], [], 0.0

    def update(self, loss):
        self.losses.append(loss)  # keeps: losses


def train_one_epoch(model, loader, optimizer, metrics):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)  # allocates: losses, total
        loss.backward()
        optimizer.step()
        if fault == "losses":
            metrics.update(loss)
        metrics.sum = metrics.sum + (loss if fault == "total" else loss.item())  # allocates: total
        if fault == "closure":
            features = x * 2  # allocates: closure
            metrics.callbacks.append(lambda: features.mean().item())  # keeps: closure
        time.sleep(0.02)


def validate(model, loader, metrics):
    model.eval()
    correct = 0
    for x, y in loader:
        output = model(x)
        if fault == "outputs":
            metrics.outputs.append(output)  # keeps: outputs
        correct += (output.argmax(1) == y).sum().item()
    return correct


training = DataLoader(Images(48), batch_size=16, shuffle=True)
validation = DataLoader(Images(4), batch_size=2)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
metrics = Metrics()
epoch = 0
while True:
    train_one_epoch(model, training, optimizer, metrics)
    validate(model, validation, metrics)
    epoch += 1
    if epoch == 10:
        print("training", flush=True)
