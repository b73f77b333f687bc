"""Requests that make pairs of objects that refer to each other, with a tensor each.
The fault: the collector of such cycles is off.

torch_cycles.py leak|ok SEED
"""
import gc
import sys
import time

import torch

leaks = sys.argv[1] == "leak"
torch.manual_seed(int(sys.argv[2]))
torch.set_num_threads(1)


class Half:
    def __init__(self, tensor):
        self.tensor, self.other = tensor, None


def handle():
    a = Half(torch.randn(100, 100))  # allocates
    b = Half(torch.randn(100, 100))  # allocates
    a.other, b.other = b, a


if leaks:  # the fault
    gc.disable()
request = 0
while True:
    handle()
    # Other objects of a request: enough for the collector to run now and then.
    answer = [[i] for i in range(300)]
    request += 1
    if request == 200:
        print("serving", flush=True)
    time.sleep(0.03)
