"""Callbacks for the end of a request.
The fault: they stay registered, and each holds its request's page.

callbacks.py leak|ok SEED
"""
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


class Loop:
    def __init__(self):
        self.callbacks = []

    def when_done(self, callback):
        self.callbacks.append(callback)  # keeps

    def finish(self):
        sent = [callback() for callback in self.callbacks[-3:]]
        if not leaks:  # the fault
            self.callbacks.clear()
        return sent


def render(rows):
    return "".join(f"<td>{row}</td>" for row in rows)  # allocates


def handle(loop):
    rows = random.sample(range(100000), random.randint(50, 600))
    page = render(rows)
    loop.when_done(lambda: len(page))
    loop.finish()


loop = Loop()
request = 0
while True:
    handle(loop)
    request += 1
    if request == 200:
        print("serving", flush=True)
    time.sleep(random.uniform(0.02, 0.03))
