"""Interpreters inside of one another, in one thread."""

import os
import sys

import truth
from truth import note, probe

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

INSIDE = """
import sys
sys.path.insert(0, {folder!r})
import truth
truth.first = {first}

def inside_function():
    # Its interpreter does not see who called it.
    truth.probe(truth.note(outer={outer!r}))

for _ in range(20):
    inside_function()
truth.write()
"""


def create():
    if sys.version_info >= (3, 13):
        return interpreters.create("legacy")
    if sys.version_info >= (3, 12):
        return interpreters.create(isolated=False)
    return interpreters.create()


def beside():
    for _ in range(20):
        probe(note())


def within(number):
    inside = create()
    beside()
    source = INSIDE.format(
        folder=os.path.dirname(__file__),
        first=truth.first + 1000 * number,
        outer=truth.frames_of(sys._getframe()),
    )
    failure = interpreters.run_string(inside, source)
    if failure:
        raise RuntimeError(failure)
    beside()
    interpreters.destroy(inside)
    beside()


def one_after_another():
    for number in (1, 2):
        within(number)


REPEATED = []
ONCE = [one_after_another]
