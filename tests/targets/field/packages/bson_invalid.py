"""Encodes documents, some of which cannot be stored.
The fault is the package's: pymongo 4.15.2 keeps the document and its error (PYTHON-5571)."""
import time

import bson


class Money:
    pass


def store(count):
    try:
        bson.encode({"id": count, "note": "n" * 1000, "price": Money()})  # allocates
    except bson.errors.InvalidDocument:
        pass


count = 0
while True:
    for _ in range(5):
        count += 1
        store(count)
    if count == 1250:
        print("serving", flush=True)
    time.sleep(0.02)
