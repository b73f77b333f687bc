"""Frames encoded by a module in C, which has the fault: extension.c.

encoder.py leak|ok SEED (PYTHONPATH has the module)
"""
import random
import sys
import time

import extension

extension.configure(sys.argv[1] == "leak")
random.seed(int(sys.argv[2]))

sent = 0
frame = 0
while True:
    sent += len(extension.encode(random.randbytes(random.randint(4000, 40000))))
    frame += 1
    if frame == 200:
        print("encoding", flush=True)
    time.sleep(random.uniform(0.02, 0.03))
