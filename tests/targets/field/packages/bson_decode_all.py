"""Decodes batches of documents.
The fault is the package's: `decode_all` of pymongo 4.1.0 keeps its options (PYTHON-3222)."""
import time

import bson

batch = bson.encode({"id": 1, "name": "n" * 50})


def load():
    return bson.decode_all(batch)  # allocates


count = 0
while True:
    for _ in range(20):
        count += 1
        load()
    if count == 5000:
        print("serving", flush=True)
    time.sleep(0.02)
