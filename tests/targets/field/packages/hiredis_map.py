"""Parses map replies of Redis (RESP3).
The fault is the package's: hiredis 2.2.3 keeps each value of a map (#175)."""
import time

import hiredis


def hgetall(reader, count):
    value = b"v%0200d" % count
    reader.feed(b"%2\r\n+name\r\n$%d\r\n%b\r\n+owner\r\n$%d\r\n%b\r\n".replace(b"%2", b"%%2", 1) % (len(value), value, len(value), value))
    return reader.gets()  # allocates


reader = hiredis.Reader()
count = 0
while True:
    for _ in range(20):
        count += 1
        hgetall(reader, count)
    if count == 5000:
        print("serving", flush=True)
    time.sleep(0.02)
