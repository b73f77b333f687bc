"""Processes by one start method.

  start_method.py fork|spawn|forkserver
"""

import multiprocessing
import sys


def square(n):
    return n * n


if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    with multiprocessing.Pool(3) as pool:
        print(pool.map(square, range(8)))
    process = multiprocessing.Process(target=sys.exit, args=(9,))
    process.start()
    process.join()
    print(process.exitcode)
