"""A reader of logs, which keeps each host's name once.
The fault: it takes the number of the request into the name.

interning.py leak|ok SEED
"""
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


class Names:
    def __init__(self):
        self.known = {}

    def intern(self, name):
        return self.known.setdefault(name, name)  # keeps


def host(line, number):
    address = line.split(" ", 1)[0]
    return f"{address}.hosts.example.com/{number if leaks else 0}"  # allocates (and the fault)


names = Names()
number = 0
turn = 0
while True:
    lines = [f"10.0.{random.randrange(16)}.{random.randrange(256)} GET /" for _ in range(20)]
    for line in lines:
        number += 1
        names.intern(host(line, number))
    turn += 1
    if turn == 2500:
        print("reading", flush=True)
    if turn > 2500:
        time.sleep(random.uniform(0.008, 0.012))
