"""Serialises replies, some of which cannot be serialised.
The fault is the package's: orjson 3.9.0 keeps exceptions raised in `default`."""
import time

import orjson


class Money:
    def __init__(self, cents):
        self.cents = cents
        self.note = "n" * 400


def plain(value):
    raise TypeError("%s cannot be sent: %s" % (type(value).__name__, value.note))  # allocates


def reply(request):
    try:
        return orjson.dumps({"id": request, "price": Money(request)}, default=plain)  # allocates
    except orjson.JSONEncodeError:
        return b"{}"


count = 0
while True:
    for _ in range(10):
        count += 1
        reply(count)
    if count == 2500:
        print("serving", flush=True)
    time.sleep(0.02)
