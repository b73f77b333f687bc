"""A list that grows; a line on standard input makes the process execute another program."""

import os
import sys
import threading
import time

history = []


def grow():
    while True:
        history.append(object())
        time.sleep(0.001)


threading.Thread(target=grow, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
os.execv("/bin/cat", ["cat"])
