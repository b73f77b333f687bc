"""Fills a row of labels for each frame.
The fault is the package's: `fill` of numpy 1.24.0 keeps its argument (#22798)."""
import time

import numpy as np

row = np.empty(16, object)


def frame(count):
    row.fill("frame %d " % count + "f" * 500)  # allocates


count = 0
while True:
    for _ in range(10):
        count += 1
        frame(count)
    if count == 5000:
        print("serving", flush=True)
    time.sleep(0.02)
