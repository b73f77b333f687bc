"""A server that keeps its sessions, one in 5 ms: the examples of the documentation run on it."""
import sys
import time


class Session:
    def __init__(self):
        self.data = bytearray(1000)


sessions = []
print(f"ready {id(sessions):#x}", flush=True)
while len(sessions) < int(sys.argv[1]):
    sessions.append(Session())
    time.sleep(0.005)
