"""Inference on a GPU, whose larger model is not needed any more.
No leak: PyTorch's allocator keeps the memory of the deleted model.

torch_unloaded.py leak SEED
"""
import sys
import time

import torch
from torch import nn

torch.manual_seed(int(sys.argv[2]))


def load(layers):
    return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(layers))).cuda().eval()


models = {"small": load(1), "large": load(100)}
request = 0
while True:
    with torch.no_grad():
        for model in models.values():
            model(torch.rand(8, 1024, device="cuda"))
    request += 1
    if request == 50:
        print("serving", flush=True)
    if request == 200:
        del models["large"]
        model = None
    time.sleep(0.05)
