"""Two threads that replace thousands of containers a second, while a list of sessions grows. Prints what to search for."""

import random
import threading
import time


class Leak:
    def __init__(self):
        self.data = bytearray(600)


cache = {"sessions": []}
churn = [None] * 5000


def replace():
    while True:
        at = random.randrange(len(churn))
        churn[at] = {"a": [at, (at, str(at))], "b": {at: [at] * 10}}


def leak():
    while True:
        cache["sessions"].append(Leak())
        time.sleep(0.001)


if __name__ == "__main__":
    for _ in range(1000):
        cache["sessions"].append(Leak())
    for work in (replace, replace, leak):
        threading.Thread(target=work, daemon=True).start()
    while None in churn:
        time.sleep(0.01)
    print("ready --type=Leak", flush=True)
    input()
