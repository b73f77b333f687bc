"""Logs the settings of each request.
The fault is the package's: `repr` of frozendict 2.3.2 keeps a string (2.3.3 mends it)."""
import time

from frozendict import frozendict


def log(count):
    return repr(frozendict({"id": count, "path": "p" * 500}))  # allocates


count = 0
while True:
    for _ in range(10):
        count += 1
        log(count)
    if count == 2500:
        print("serving", flush=True)
    time.sleep(0.02)
