"""Forks a child that only waits, with 48 MiB in objects that it shares with its parent, and says its number."""

import os
import sys

shared = [b"%d" % number + bytes(1000) for number in range(48_000)]
child = os.fork()
if child:
    print("child", child, flush=True)
    os.waitpid(child, 0)
else:
    sys.stdin.read()
