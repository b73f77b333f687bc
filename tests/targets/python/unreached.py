"""Objects that no root reaches: with a reference that native code did not give back, in cycles, in cycles that the
collector cannot see, and alive in a way that memtrace cannot see. Prints `made NAME=ADDRESS …`. Two threads mutate all
the time."""

import collections
import ctypes
import functools
import gc
import sys
import threading
from xml.etree import ElementTree

try:
    import torch
except ImportError:
    torch = None

gc.collect()
# No collection by itself from now on.
gc.set_threshold(1 << 30)

made = []


class Node:
    pass


class Slotted:
    __slots__ = ("held",)


def mark(name, value):
    made.append(f"{name}={id(value):#x}")
    return value


def leak(name, value):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(mark(name, value)))


def surplus():
    leak("surplus_list", [mark("surplus_in_list", b"y" * int("700"))])
    leak("surplus_dict", {"key": [1]})
    leak("surplus_tuple", tuple(str(n) for n in range(3)))
    leak("surplus_tuple_of_list", ([1],))
    leak("surplus_str", "x" * int("600"))
    leak("surplus_short_str", "x" * int("50"))
    leak("surplus_bytes", b"x" * int("600"))
    node = Node()
    node.held = [mark("surplus_in_instance", b"z" * int("700"))]
    leak("surplus_instance", node)
    slotted = Slotted()
    slotted.held = {1: [2]}
    leak("surplus_slotted", slotted)
    captured = [1]
    leak("surplus_closure", lambda: captured)
    leak("surplus_set", {(1, 2), (3, "x")})
    leak("surplus_deque", collections.deque([[1]]))
    leak("surplus_partial", functools.partial(print, [1]))
    suspended = (n for n in [[1]])
    next(suspended)
    leak("surplus_generator", suspended)
    if torch is not None:
        leak("surplus_tensor", torch.ones(1000))
        leak("surplus_graph", (torch.ones(1000, requires_grad=True) * 2).sum())
    parent, child = Node(), Node()
    parent.child, child.parent = mark("surplus_below_cycle", child), parent
    leak("surplus_above_cycle", parent)


def cycles():
    node = mark("cycle_instance", Node())
    node.itself = node
    node.held = mark("cycle_content", b"c" * int("700"))
    items = mark("cycle_list", [])
    items.append(items)
    keys = mark("cycle_dict", {})
    keys["itself"] = keys
    pair = ([],)
    pair[0].append(mark("cycle_tuple", pair))
    slotted = mark("cycle_slotted", Slotted())
    slotted.held = [slotted]

    def recursive():
        return recursive

    mark("cycle_closure", recursive)
    owner = mark("cycle_bound_method", Node())
    owner.method = functools.partial(print, owner)
    queue = mark("cycle_deque", collections.deque())
    queue.append([queue])

    def generate():
        own = yield
        yield mark("cycle_generator", own)

    suspended = generate()
    next(suspended)
    suspended.send(suspended)
    try:
        raise ValueError
    except ValueError as error:
        caught = mark("cycle_exception", error)
    caught.itself = caught


def hidden():
    def function():
        pass

    held = mark("hidden_by_code", [function])
    # A code object is not tracked.
    function.__code__ = function.__code__.replace(co_consts=(None, (held,)))


trees = []


def held():
    # The structures of C behind an element are not objects, and the collector does not track what they hold: it is held.
    tree = ElementTree.fromstring("<order><item number='1'>a text of its own</item></order>")
    trees.append(tree)
    mark("held_attributes", tree[0].attrib)
    mark("held_text", tree[0].text)


def mutate():
    kept = collections.deque(maxlen=500)
    while True:
        node = Node()
        node.items = [{n: str(n)} for n in range(20)]
        kept.append((node, lambda: node))


sys.setswitchinterval(0.0005)
for _ in range(2):
    threading.Thread(target=mutate, daemon=True).start()
# In threads of their own, whose stacks end with them: what is left there would point to the objects. Several times,
# because free memory of the interpreter may point to some.
for make in (surplus, cycles, hidden, held) * 8:
    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
print("made", *made, flush=True)
sys.stdin.read()
