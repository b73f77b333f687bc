"""A service that puts its actions into a queue.
The fault: the queue has no end, and nobody takes anything out.

audit_queue.py leak|ok SEED
"""
import queue
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


class Audit:
    def __init__(self):
        self.events = queue.Queue(maxsize=0 if leaks else 50)  # the fault

    def submit(self, event):
        try:
            self.events.put_nowait(event)  # keeps
        except queue.Full:
            self.events.get_nowait()
            self.events.put_nowait(event)


def describe(request):
    return ("request %d " % request) * random.randint(50, 500)  # allocates


audit = Audit()
request = 0
while True:
    request += 1
    audit.submit(describe(request))
    page = "".join(str(i) for i in range(random.randint(100, 5000)))
    if request == 200:
        print("serving", flush=True)
    time.sleep(random.uniform(0.015, 0.025))
