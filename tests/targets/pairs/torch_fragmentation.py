"""Inference on a GPU of 1 GiB, with inputs of varying length.
No leak: some answers stay for a while, between them is too little room in one piece for the longest input.

torch_fragmentation.py leak SEED
"""
import collections
import os
import sys
import time

# Of the stand-in for a GPU; a real one has its own.
os.environ["FAKECUDA_TOTAL_MB"] = "1024"
import torch

MIB = 1 << 20
torch.manual_seed(int(sys.argv[2]))


class Service:
    def __init__(self):
        self.answers = collections.deque(maxlen=60)
        self.running = []

    def infer(self, length):
        return torch.empty(length * MIB // 2, dtype=torch.uint8, device="cuda")

    def answer(self):
        return torch.empty(3 * MIB // 2, dtype=torch.uint8, device="cuda")

    def handle(self, request):
        self.running.append(self.infer(8 + request % 40))
        if request % 2 == 0:
            self.answers.append(self.answer())
        if len(self.running) > 6:
            self.running.pop(request % 5)

    def handle_longest(self):
        self.running.clear()
        try:
            self.infer(1400)
        except torch.OutOfMemoryError:
            print("an input was too long", flush=True)


service = Service()
request = 0
while True:
    service.handle(request)
    request += 1
    if request == 600:
        print("serving", flush=True)
    if request % 400 == 0:
        service.handle_longest()
    time.sleep(0.015)
