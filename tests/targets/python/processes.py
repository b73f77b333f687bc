"""Processes that a program makes: copies of itself, and new ones."""

import multiprocessing
import os

import truth
from truth import note, probe


def own():
    for _ in range(20):
        probe(note())


def forked():
    own()
    child = os.fork()
    if child == 0:
        truth.forget()
        truth.warm_up()
        own()
        truth.write()
        os._exit(0)
    own()
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the child failed")


def in_new_process():
    truth.warm_up()
    own()
    truth.write()


def spawned():
    child = multiprocessing.get_context("spawn").Process(target=in_new_process)
    child.start()
    own()
    child.join()
    if child.exitcode:
        raise RuntimeError("the child failed")


REPEATED = []
ONCE = [forked, spawned]
