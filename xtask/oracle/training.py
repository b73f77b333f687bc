"""Target of `cargo xtask oracle --torch`: steps of small PyTorch networks of several kinds, training and inference.

Says "ready", then works until it is killed.
"""

import itertools

import torch
from torch import nn

# One more processor is for the collector.
torch.set_num_threads(1)


def linear():
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(16, 64)


def convolution():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(10))
    return net, torch.randn(4, 3, 16, 16)


def attention():
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), torch.randn(2, 12, 32)


def recurrent():
    class Last(nn.LSTM):
        def forward(self, rows):
            return super().forward(rows)[0][:, -1]

    return Last(16, 32, batch_first=True), torch.randn(4, 8, 16)


def training(net, inputs):
    optimizer = torch.optim.Adam(net.parameters())
    while True:
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()
        yield


@torch.inference_mode()
def inference(net, inputs):
    while True:
        net(inputs).argmax(-1).tolist()
        yield


steps = []
for make in (linear, convolution, attention, recurrent):
    net, inputs = make()
    net(inputs)
    steps += [training(net, inputs), inference(net, inputs)]
for step in steps:
    next(step)
print("ready", flush=True)
for step in itertools.cycle(steps):
    next(step)
