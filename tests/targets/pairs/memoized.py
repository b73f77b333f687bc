"""Reports, made once for each customer and day.
The fault: the cache of them has no limit.

memoized.py leak|ok SEED
"""
import functools
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


@functools.lru_cache(maxsize=None if leaks else 64)  # the fault
def report(customer, day):
    lines = [f"{customer} bought {i} on {day}" for i in range(random.randint(20, 200))]
    return "\n".join(lines)  # allocates


def handle(request):
    return len(report(random.randrange(1000), request))  # keeps


request = 0
while True:
    handle(request)
    request += 1
    if request == 200:
        print("serving", flush=True)
    time.sleep(random.uniform(0.02, 0.03))
