"""Cursors over results, as generators.
The fault: those that are not read to their end stay open.

cursors.py leak|ok SEED
"""
import random
import sys
import time

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))


def rows(size):
    page = bytearray(size)  # allocates
    for position in range(0, size, 100):
        yield page[position:position + 100]


class Database:
    def __init__(self):
        self.cursors = []

    def query(self, size):
        cursor = rows(size)
        self.cursors.append(cursor)  # keeps
        return cursor

    def done(self):
        if not leaks:  # the fault
            self.cursors.pop().close()


database = Database()
query = 0
while True:
    cursor = database.query(random.randint(1000, 16000))
    first = [bytes(next(cursor)) * 300 for _ in range(5)]
    database.done()
    query += 1
    if query == 200:
        print("serving", flush=True)
    time.sleep(random.uniform(0.03, 0.05))
