"""Threads that compress documents.
The fault: every result is put into a list that they share.

workers.py leak|ok SEED
"""
import queue
import random
import sys
import threading
import time
import zlib

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


class Results:
    def __init__(self):
        self.lock, self.done, self.count = threading.Lock(), [], 0

    def add(self, result):
        with self.lock:
            self.count += 1
            if leaks:  # the fault
                self.done.append(result)  # keeps


def compress(document):
    return zlib.compress(document, 1)  # allocates


def work(jobs, results):
    while True:
        document = jobs.get().encode()
        results.add(compress(document))


jobs, results = queue.Queue(8), Results()
for _ in range(3):
    threading.Thread(target=work, args=(jobs, results), daemon=True).start()
warm = False
while True:
    words = [str(random.getrandbits(32)) for _ in range(random.randint(200, 2000))]
    jobs.put(" ".join(words))
    if not warm and results.count >= 100:
        warm = True
        print("working", flush=True)
    time.sleep(random.uniform(0.03, 0.05))
