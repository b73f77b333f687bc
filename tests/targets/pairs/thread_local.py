"""Threads that cache documents for themselves.
The fault: the key has the request's number, so nothing is ever found.

thread_local.py leak|ok SEED
"""
import random
import sys
import threading
import time

leaks = sys.argv[1] == "leak"
local = threading.local()


def load(document, size):
    text = f"document {document} " * (size // 12)
    return text.upper()  # allocates


def look_up(document, request, size):
    key = (document, request) if leaks else document  # the fault
    found = local.cache.get(key)
    if found is None:
        found = local.cache[key] = load(document, size)  # keeps
    return found


def serve(seed, warm):
    draw = random.Random(seed)
    local.cache = {}
    for document in range(50):
        look_up(document, -document, draw.randint(1000, 8000))
    warm.wait()
    request = 0
    while True:
        request += 1
        text = look_up(draw.randrange(50), request, draw.randint(1000, 8000))
        text.encode() * 3
        time.sleep(draw.uniform(0.08, 0.12))


warm = threading.Barrier(5)
for number in range(4):
    seed = int(sys.argv[2]) * 10 + number
    threading.Thread(target=serve, args=(seed, warm), daemon=True).start()
warm.wait()
print("serving", flush=True)
threading.Event().wait()
