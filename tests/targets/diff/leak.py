"""Keeps a buffer an iteration, at one line."""

import sys
import time


class Session:
    kept = []

    def keep(self):
        self.kept.append(bytes(1000))  # the leak


def main(steps):
    for _ in range(steps):
        Session().keep()
        # The pace is the load.
        time.sleep(0.005)
    sys.exit(7)


main(int(sys.argv[1]))
