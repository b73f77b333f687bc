"""Serialises replies, some of which cannot be.
The fault is the package's: ujson 5.3.0 keeps an enlarged buffer after an error (#549)."""
import time

import ujson


def reply(count):
    try:
        return ujson.dumps(["a" * 70000, object()])  # allocates
    except TypeError:
        return ""


class object:
    def __json__(self):
        raise TypeError("not serialisable")


count = 0
while True:
    count += 1
    reply(count)
    if count == 40:
        print("serving", flush=True)
    time.sleep(0.2)
