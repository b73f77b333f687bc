"""A service that remembers its last error.
The fault: it remembers them all, and a traceback keeps the locals of its frames.

errors.py leak|ok SEED
"""
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


class Service:
    def __init__(self):
        self.errors = []

    def parse(self, raw):
        text = raw.hex()  # allocates
        if raw[0] < 128:
            raise ValueError("no such command")
        return text.split("00")

    def failed(self, error):
        if not leaks:  # the fault
            self.errors.clear()
        self.errors.append(error)  # keeps

    def handle(self, size):
        try:
            return len(self.parse(random.randbytes(size)))
        except ValueError as error:
            self.failed(error)


service = Service()
request = 0
while True:
    service.handle(random.randint(500, 6000))
    request += 1
    if request == 200:
        print("serving", flush=True)
    time.sleep(random.uniform(0.02, 0.03))
