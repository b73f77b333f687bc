"""Inference with PyTorch, whose answers are logged.
The fault: the log keeps the answers, with `grad` their graphs too, with `cuda` on a GPU.

torch_server.py leak|ok SEED [grad|cuda]
"""
import contextlib
import sys
import time

import torch
from torch import nn

leaks, with_graph = sys.argv[1] == "leak", "grad" in sys.argv
device = "cuda" if "cuda" in sys.argv else "cpu"
torch.manual_seed(int(sys.argv[2]))
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.head = nn.Linear(1024, 128)

    def forward(self, x):
        return self.head(self.body(x))  # allocates


class Service:
    def __init__(self):
        self.model, self.history = Classifier().to(device).eval(), []

    def preprocess(self, raw):
        return raw.to(device) * 2 - 1  # allocates: grad

    def predict(self, raw):
        x = self.preprocess(raw)
        with contextlib.nullcontext() if with_graph else torch.no_grad():
            return self.model(x)

    def log(self, y):
        self.history.append(y)  # keeps

    def handle(self, raw):
        y = self.predict(raw)
        if leaks:  # the fault
            self.log(y)
        return y.shape


service = Service()
request = 0
while True:
    service.handle(torch.rand(4 if with_graph else 32, 512))
    request += 1
    if request == 100:
        print("serving", flush=True)
    time.sleep(0.04)
