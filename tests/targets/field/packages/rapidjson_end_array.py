"""Reads documents with a decoder that turns arrays into tuples.
The fault is the package's: python-rapidjson 1.5 keeps what `end_array` returns (#160)."""
import time

import rapidjson


class Decoder(rapidjson.Decoder):
    def end_array(self, sequence):
        return tuple(sequence)  # allocates


decoder = Decoder()
document = '{"rows": [%s]}' % ",".join("[%d, %d]" % (row, row + 1000) for row in range(1000, 1010))


def load():
    return decoder(document)  # allocates


count = 0
while True:
    for _ in range(10):
        count += 1
        load()
    if count == 2500:
        print("serving", flush=True)
    time.sleep(0.02)
