"""Writes replies to clients, some of which have gone.
The fault is the package's: ujson 5.12.0 keeps the text if writing it fails (CVE-2026-44660)."""
import time

import ujson


class Gone:
    def write(self, text):
        raise BrokenPipeError("client has gone")


def reply(count):
    try:
        ujson.dump({"id": count, "body": "b" * 6000}, Gone())  # allocates
    except BrokenPipeError:
        pass


count = 0
while True:
    count += 1
    reply(count)
    if count == 250:
        print("serving", flush=True)
    time.sleep(0.02)
