"""A master that allocates nothing and forks workers, one after another.

Each byte on standard input starts a worker. When it has ended, a line has its number and pid.
"""

import ctypes
import os

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def work():
    for _ in range(100):
        libc.free(libc.malloc(3000))


def serve():
    work()
    os.write(1, b"ready\n")
    workers = 0
    while os.read(0, 1):
        worker = os.fork()
        if worker == 0:
            work()
            os._exit(0)
        os.waitpid(worker, 0)
        workers += 1
        os.write(1, b"ended %d %d\n" % (workers, worker))


serve()
