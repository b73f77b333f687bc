"""Reads dates that users type, some of which are not dates.
The fault is the package's: `parse` of pendulum 2.1.2 leaks if it fails (#720)."""
import time

import pendulum


def read(count):
    try:
        return pendulum.parse("tomorrow %d" % count)  # allocates
    except ValueError:
        return None


count = 0
while True:
    for _ in range(30):
        count += 1
        read(count)
    if count == 7500:
        print("serving", flush=True)
    time.sleep(0.02)
