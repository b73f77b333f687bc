"""Answers by route, for a page of statistics.
The fault: all of them are kept, not the last ones only.

samples.py leak|ok SEED
"""
import collections
import json
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))
routes = [f"/api/{name}" for name in ("users", "orders", "items", "carts", "search", "login")]


class Statistics:
    def __init__(self):
        self.answers = collections.defaultdict(list)

    def record(self, route, answer):
        kept = self.answers[route]
        kept.append(answer)  # keeps
        if not leaks:  # the fault
            del kept[:-10]


def answer(rows):
    return json.dumps(rows)  # allocates


statistics = Statistics()
request = 0
while True:
    rows = [{"id": i, "name": f"name {i}"} for i in range(random.randint(20, 200))]
    statistics.record(random.choice(routes), answer(rows))
    request += 1
    if request == 300:
        print("serving", flush=True)
    time.sleep(random.uniform(0.015, 0.025))
