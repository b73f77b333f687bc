"""Allocates and frees until it is killed.

busy.py PROGRESS   a file of 16 bytes: rounds done, and this process's pid
"""

import ctypes
import mmap
import os
import struct
import sys

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

with open(sys.argv[1], "r+b") as file:
    progress = mmap.mmap(file.fileno(), 16)

rounds = 0
while True:
    lists = [[str(i)] * 40 for i in range(100)]
    blobs = [bytes(1000 + i * 50) for i in range(50)]
    native = [libc.malloc(100 + i) for i in range(50)]
    for address in native:
        libc.free(address)
    rounds += 1
    progress[:] = struct.pack("QQ", rounds, os.getpid())
