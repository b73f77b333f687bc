"""Validates traces of requests.
The fault is the package's: pydantic 2.7.0 keeps each validated iterable (#9243)."""
import time
from collections.abc import Iterable

from pydantic import BaseModel


class Trace(BaseModel):
    elements: Iterable[int]


def request(count):
    return Trace(elements=[count + step for step in range(40)])  # allocates


count = 0
while True:
    for _ in range(5):
        count += 1
        request(count)
    if count == 1250:
        print("serving", flush=True)
    time.sleep(0.02)
