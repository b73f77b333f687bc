"""Reads messages from a stream.
The fault is the package's: on Python 3.12, iterating over an Unpacker of msgpack 1.0.7 leaks (mended in 1.0.8)."""
import time

import msgpack

stream = b"".join(msgpack.packb({"id": number}) for number in range(20))


def read():
    unpacker = msgpack.Unpacker()
    unpacker.feed(stream)
    return sum(message["id"] for message in unpacker)  # allocates


count = 0
while True:
    for _ in range(5):
        count += 1
        read()
    if count == 1250:
        print("serving", flush=True)
    time.sleep(0.02)
