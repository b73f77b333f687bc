"""Caches prices by the request that asks for them.
The fault is the program's: a plain dict as cache has no limit, and requests never compare equal.

prices.py leak|ok SEED"""
import sys
import time

from cachetools import LRUCache, cached

leaks = sys.argv[1] == "leak"


class Request:
    def __init__(self, product):
        self.product = product


@cached({} if leaks else LRUCache(100))
def price(request):
    return ["%d of %d" % (part, request.product) for part in range(60)]  # allocates


count = 0
while True:
    price(Request(count))
    count += 1
    if count == 250:
        print("serving", flush=True)
    time.sleep(0.02)
