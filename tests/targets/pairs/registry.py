"""Requests that know one another.
The fault: each puts itself into a list of the class.

registry.py leak|ok SEED
"""
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


class Request:
    all = []

    def __init__(self, size):
        self.headers = {"length": str(size), "host": "localhost"}
        self.body = bytearray(size)  # allocates
        if leaks:  # the fault
            Request.all.append(self)  # keeps

    def answer(self):
        return bytes(self.body).hex()


count = 0
while True:
    Request(random.randint(800, 9000)).answer()
    count += 1
    if count == 200:
        print("serving", flush=True)
    time.sleep(random.uniform(0.015, 0.025))
