"""A DataLoader whose workers cache decoded items.
The fault: the key has the number of the call, so nothing is ever found.

torch_loader.py leak|ok SEED
"""
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

leaks = sys.argv[1] == "leak"


class Cached(Dataset):
    def __init__(self, count):
        self.count, self.cache, self.calls = count, {}, 0

    def __len__(self):
        return self.count

    def decode(self, i):
        time.sleep(0.02)
        return torch.rand(3, 32, 32)  # allocates

    def __getitem__(self, i):
        self.calls += 1
        key = (i, self.calls) if leaks else i  # the fault
        if key not in self.cache:
            self.cache[key] = self.decode(i)  # keeps
        return self.cache[key]


if __name__ == "__main__":
    torch.manual_seed(int(sys.argv[2]))
    torch.set_num_threads(1)
    loader = DataLoader(Cached(200), batch_size=10, num_workers=2, persistent_workers=True)
    epoch, total = 0, 0.0
    while True:
        for batch in loader:
            total += batch.mean().item()
            time.sleep(0.05)
        epoch += 1
        if epoch == 1:
            print("training", flush=True)
