"""Decodes messages.
The fault is the package's: msgspec 0.13.0 keeps each Struct that it decodes (#311)."""
import time

import msgspec


class Message(msgspec.Struct):
    id: int
    body: str


decoder = msgspec.json.Decoder(Message)


def receive(count):
    return decoder.decode(b'{"id": %d, "body": "%0400d"}' % (count, count))  # allocates


count = 0
while True:
    for _ in range(10):
        count += 1
        receive(count)
    if count == 2500:
        print("serving", flush=True)
    time.sleep(0.02)
