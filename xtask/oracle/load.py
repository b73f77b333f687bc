"""Target of `cargo xtask oracle`: Python code of many kinds, in several threads.

Says "ready", then works until it is killed.
"""
import bz2
import hashlib
import json
import re
import sqlite3
import threading
import xml.etree.ElementTree as ElementTree
import zlib
from decimal import Decimal

try:
    import numpy
except ImportError:
    numpy = None


def documents():
    data = {str(i): [i, i / 7, "x" * (i % 50), None] for i in range(200)}
    assert json.loads(json.dumps(data, indent=1)) == data
    tree = ElementTree.fromstring("<a>" + "<b c='d'>text</b>" * 100 + "</a>")
    assert len(ElementTree.tostring(tree)) > 1000


def tables():
    with sqlite3.connect(":memory:") as db:
        db.create_function("twice", 1, lambda value: value * 2)
        db.execute("CREATE TABLE t (a INTEGER, b TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?)", ((i, str(i)) for i in range(500)))
        db.execute("SELECT b, sum(twice(a)) FROM t GROUP BY b ORDER BY b DESC").fetchall()


def texts():
    text = " ".join(f"word{i}@example{i % 7}.org" for i in range(500))
    words = re.findall(r"(\w+)@(\w+)\.(?:org|com)", text)
    words.sort(key=lambda pair: (pair[1], pair[0]))
    re.sub(r"\d+", lambda match: match.group()[::-1], text)
    assert zlib.decompress(zlib.compress(text.encode())) == text.encode()
    bz2.compress(text.encode())
    hashlib.sha256(text.encode()).hexdigest()


def numbers():
    sum((Decimal(i) / 7 for i in range(200)), Decimal())
    if numpy is not None:
        matrix = numpy.random.rand(40, 40)
        numpy.linalg.inv(matrix) @ numpy.fft.fft(matrix)
        numpy.sort(matrix.astype("U8"), axis=0)


def deep(depth):
    return [depth] + deep(depth - 1) if depth else []


def work(task):
    while True:
        task()


def main():
    tasks = [documents, tables, texts, numbers, lambda: deep(30)]
    threads = [threading.Thread(target=work, args=(task,), daemon=True) for task in tasks]
    print("ready", flush=True)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
