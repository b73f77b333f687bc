"""A service that ranks documents with PyTorch.
The faults, one at a time: queries are memoized without a limit, exceptions are kept, whose tracebacks keep the tensors of
their frames.

torch_ranking.py leak|ok SEED memo|errors
"""
import collections
import functools
import random
import sys
import time

import torch
from torch import nn

fault = sys.argv[3] if sys.argv[1] == "leak" else "none"
seed = int(sys.argv[2])
random.seed(seed)
torch.manual_seed(seed)
torch.set_num_threads(1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(1000, 64), nn.Linear(64, 64)

    @functools.lru_cache(maxsize=None if fault == "memo" else 64)
    def encode(self, text):
        words = torch.tensor([ord(letter) for letter in text])
        return self.out(self.table(words))  # allocates: memo

    def forward(self, documents):
        return self.out(self.table(documents).mean(1))  # allocates: errors


class Service:
    def __init__(self):
        self.encoder, self.requests = Encoder().eval(), 0
        self.failures = collections.deque(maxlen=None if fault == "errors" else 10)

    def rank(self, query, documents):
        query = self.encoder.encode(query).mean(0)  # keeps: memo
        found = self.encoder(documents)  # allocates: errors
        scores = found * query  # allocates: errors
        if self.requests % 3 == 0:
            raise ValueError("a score is not finite")
        return scores.sum(1).argmax().item()

    @torch.no_grad()
    def handle(self):
        self.requests += 1
        query = f"{self.requests} " + "".join(random.choices("abcdefgh ", k=random.randint(20, 60)))
        documents = torch.randint(1000, (40, 16))  # allocates: errors
        try:
            return self.rank(query, documents)
        except ValueError as error:
            self.failures.append(error)  # keeps: errors


service = Service()
while True:
    service.handle()
    if service.requests == 200:
        print("serving", flush=True)
    time.sleep(0.03)
