"""Five million objects in lists and dicts, about a gigabyte; then waits for the end of its input."""

import sys


class Session:
    def __init__(self, number):
        self.number = number
        self.data = [number + 0.5, str(number)]


sessions = {number: Session(number) for number in range(int(sys.argv[1]) // 5)}
print("ready", flush=True)
sys.stdin.read()
