"""Python code that is called in every way that Python has."""

import contextlib
import signal
import sys

from truth import (
    INTERPRETER,
    NOTHING,
    called_from,
    note,
    note_again,
    note_bare,
    probe,
    probe_locked,
)


def nested():
    @called_from(NOTHING)
    def middle_function():
        @called_from(NOTHING)
        def leaf_function():
            probe(note())

        leaf_function()

    middle_function()


def locked():
    probe_locked(note())


def interpreters_own_blocks():
    # One byte more: a bytearray ends with NUL.
    bytearray(note_bare() - 1)


def fresh_frame(size):
    probe(size := note_again(size))
    return size


def frames_that_no_object_is_made_of():
    size = None
    for _ in range(3):
        size = fresh_frame(size)


class Things:
    def __init__(self):
        probe(note())

    def method(self):
        probe(note())

    @classmethod
    def of_class(cls):
        probe(note())

    @staticmethod
    def of_nothing():
        probe(note())

    @property
    def attribute(self):
        probe(note())

    def __getattr__(self, name):
        probe(note())

    def __getitem__(self, key):
        probe(note())

    def __contains__(self, key):
        probe(note())

    def __add__(self, other):
        probe(note())

    def __lt__(self, other):
        probe(note())

    def __call__(self, *arguments, **named):
        probe(note())

    def __del__(self):
        probe(note())

    def __repr__(self):
        probe(note())
        return ""


def methods():
    things = Things()
    things.method()
    Things.of_class()
    things.of_nothing()
    things.attribute
    things.missing
    things[1]
    1 in things
    things + 1
    things < 1
    things(1)
    things(*[1], **{"named": 1})
    "{!r}".format(things)
    f"{things!r}"
    del things


class Inner(Things):
    def __init__(self):
        super().__init__()

    def method(self):
        super().method()


def inherited():
    Inner().method()


def class_bodies():
    class Body:
        probe(note())

        class Nested:
            probe(note())

    class Told:
        def __init_subclass__(cls):
            probe(note())

    class Teller(Told):
        pass


def lambdas():
    (lambda: probe(note()))()
    (lambda: (lambda size=None: probe(note()))())()


def comprehensions():
    [probe(note()) for _ in range(2)]
    {probe(note()) for _ in range(2)}
    {index: probe(note()) for index in range(2)}
    [[probe(note()) for _ in range(2)] for _ in range(2)]
    [(lambda: probe(note()))() for _ in range(2)]


def yielding():
    for index in range(3):
        probe(note())
        yield index


def yielding_from():
    yield from yielding()
    probe(note())


def generators():
    for _ in yielding():
        pass
    for _ in yielding_from():
        probe(note())
    list(yielding_from())
    sum(1 for _ in (probe(note()) for _ in range(2)))
    sent = receiving()
    next(sent)
    sent.send(1)
    sent.close()


def receiving():
    try:
        yield (yield)
    finally:
        probe(note())


def wrapped(function):
    def wrapper(*arguments, **named):
        return function(*arguments, **named)

    return wrapper


@wrapped
@wrapped
def decorated(first, *, second):
    probe(note())


def decorators_and_closures():
    decorated(1, second=2)
    kept = 3

    def closure():
        return probe(note()) or kept

    closure()


class Managed:
    def __enter__(self):
        probe(note())

    def __exit__(self, *exception):
        probe(note())


@contextlib.contextmanager
def managed():
    probe(note())
    try:
        yield
    finally:
        probe(note())


def with_statements():
    with Managed():
        probe(note())
    with managed(), Managed():
        probe(note())


def failing():
    raise ValueError


def exceptions():
    try:
        failing()
    except ValueError:
        probe(note())
    else:
        return
    finally:
        probe(note())
    with contextlib.suppress(ValueError), Managed():
        failing()


def consume(*arguments, **named):
    probe(note())
    return arguments


def lines():
    consume(
        1,
        second=2,
        third=consume(
            # Between the beginning of a call and its end.
            4
        ),
    )
    consume(1); consume(2)
    (
        Things
        .of_class
        ()
    )
    [
        consume(value)
        for value in
        consume(1)
        if consume(value)
    ]
    if (
        consume()
        or consume()
    ):
        pass


@called_from(INTERPRETER)
def on_signal(number, frame):
    probe(note())


def signals():
    signal.signal(signal.SIGUSR1, on_signal)
    signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def deeper(depth):
    if depth > 0:
        return deeper(depth - 1)
    probe(note())


def deep():
    deeper(20)


def too_deep():
    deeper(900)


REPEATED = [
    nested,
    locked,
    interpreters_own_blocks,
    frames_that_no_object_is_made_of,
    methods,
    inherited,
    class_bodies,
    lambdas,
    comprehensions,
    generators,
    decorators_and_closures,
    with_statements,
    exceptions,
    lines,
    signals,
    deep,
]
ONCE = [too_deep]

if sys.version_info >= (3, 10):
    # Syntax that older ones refuse.
    exec(
        compile(
            """
def matched():
    match [probe(note()), 2]:
        case [_, 2] if consume():
            probe(note())
""",
            __file__ + ":matched",
            "exec",
        )
    )
    REPEATED.append(matched)
