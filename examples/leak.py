"""A server that forgets: every picture is put into a cache that nothing ever
empties. Runs for about 15 seconds.

    memtrace record -o leak.mtr -- python3 examples/leak.py && memtrace diagnose leak.mtr

The pictures are larger than 512 bytes, so CPython asks malloc for them; smaller
objects live in arenas that it maps for itself.
"""

import sys
import time

CACHE = {}


def load_picture(number):
    """The leak: 10,000 bytes for each request (and CPython's one to end them)."""
    picture = bytearray(10_000)
    CACHE[number] = picture
    return picture


def make_thumbnail(picture):
    """No leak: the copy dies with the call."""
    return len(bytes(picture[:2_000]))


def handle_request(number):
    make_thumbnail(load_picture(number))


def main(requests):
    print("answering requests", flush=True)
    for number in range(requests):
        handle_request(number)
        time.sleep(0.005)
    print(f"{requests} requests answered, {requests * 10_000:,} bytes forgotten")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3_000)
