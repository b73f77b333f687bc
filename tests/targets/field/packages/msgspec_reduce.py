"""Copies messages by pickle, as a pool of workers does.
The fault is the package's: `Struct.__reduce__` of msgspec 0.6.0 keeps its tuple (#114)."""
import pickle
import time

import msgspec


class Message(msgspec.Struct):
    id: int
    body: str


def send(count):
    return pickle.dumps(Message(count, "b" * 300))  # allocates


count = 0
while True:
    for _ in range(40):
        count += 1
        send(count)
    if count == 10000:
        print("serving", flush=True)
    time.sleep(0.02)
