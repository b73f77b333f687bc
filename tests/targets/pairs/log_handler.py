"""A service that logs requests it cannot handle.
The fault: the handler of the log keeps every record.

log_handler.py leak|ok SEED
"""
import logging
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


class Recent(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)  # keeps
        if not leaks:  # the fault
            del self.records[:-20]


logger = logging.getLogger("service")
logger.addHandler(Recent())
logger.propagate = False


def read_body():
    return random.randbytes(random.randint(1000, 12000))  # allocates


def handle():
    body = read_body()
    text = body.hex()
    if body[0] % 2:
        logger.warning("cannot handle %s", body)
    return len(text)


request = 0
while True:
    handle()
    request += 1
    if request == 200:
        print("serving", flush=True)
    time.sleep(random.uniform(0.015, 0.025))
