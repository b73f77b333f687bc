"""Target of `cargo xtask bench`: allocates below Python frames of known number. Says "ready", waits
for a line on stdin, does its work.

    frames.py FRAMES COUNT   COUNT blocks, each below FRAMES Python frames, and freed

The module's own frame is one of them. All run in one evaluation loop since Python 3.11, and in a
loop of their own each before.
"""

import sys

# Larger than the interpreter's object allocator serves: each is a malloc.
BLOCK = 1000


def below(frames, count):
    if frames > 1:
        below(frames - 1, count)
    else:
        for _ in range(count):
            bytearray(BLOCK)


frames, count = int(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
if frames > 1:
    below(frames - 1, count)
else:
    for _ in range(count):
        bytearray(BLOCK)
