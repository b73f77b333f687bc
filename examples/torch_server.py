"""A PyTorch server that remembers every answer: the example of docs/tutorial.md.

    python examples/torch_server.py

Runs until it is stopped.
"""
import time

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(512, 1024), nn.ReLU())
        self.head = nn.Linear(1024, 128)

    def forward(self, x):
        return self.head(self.body(x))


class Service:
    def __init__(self):
        self.model = Classifier().eval()
        self.history = []

    def predict(self, x):
        with torch.no_grad():
            return self.model(x)

    def handle(self, x):
        y = self.predict(x)
        self.history.append(y)
        return y.argmax(1)


service = Service()
torch.set_num_threads(1)
while True:
    service.handle(torch.rand(32, 512))
    time.sleep(0.04)
