"""A call that a recording waits for: `awaited.py` says "begun", awaits a line, and in `Trainer.step` another."""

import sys


class Trainer:
    def step(self):
        kept = bytearray(1000)
        input()
        return kept


print("begun", flush=True)
input()
Trainer().step()
sys.exit(7)
