"""Objects that are held in every way there is, one class for each, and a judge of expressions.

For each line `NUMBER CLASS EXPRESSION` on standard input it says whether the expression, with modules as
names, is the object of that class that was made at the start. The argument is a library that is built from `static.c`.
"""

import asyncio
import collections
import contextvars
import ctypes
import functools
import gc
import json.decoder
import sys
import threading
import weakref
import xml.etree.ElementTree

identities = {}


def make(name, base=object):
    """An object of a class of its own."""
    one = type(name, (base,), {"__module__": __name__})()
    identities[name] = id(one)
    return one


class Plain:
    """Instances share the keys of their attributes."""


class Slotted:
    __slots__ = ("held", "other")


class SlottedChild(Slotted):
    """Slots and a dict."""


class MyList(list):
    pass


class MyDict(dict):
    pass


in_list = [None, make("InList")]
in_nested = {"by user": {42: [make("InNested")]}}
in_dict_of_ints = {7: make("InDictOfInts"), 2**70: None}
in_dict_of_negatives = {-3: make("InDictOfNegatives")}
in_dict_of_strings = {"it's \n \"quoted\"": make("InDictOfStrings")}
in_dict_of_unicode = {"ключ": make("InDictOfUnicode"), "日本": make("InDictOfWide"), "é": make("InDictOfLatin")}
in_dict_of_bytes = {b"a\x00b": make("InDictOfBytes")}
in_dict_of_tuples = {(1, "a", (2, None)): make("InDictOfTuples")}
in_dict_of_floats = {2.5: make("InDictOfFloats"), True: make("InDictOfBooleans"), None: make("InDictOfNone")}
by_object = {make("InDictAsKey"): None, Plain(): make("InDictOfObjects")}
in_tuple = (1, (2, make("InTuple")))
in_set = {make("InSet")}
in_frozenset = frozenset([make("InFrozenset")])
in_my_list = MyList([make("InMyList")])
in_my_dict = MyDict(key=make("InMyDict"))
in_my_list_attribute = MyList()
in_my_list_attribute.extra = make("InMyListAttribute")
in_instance = Plain()
in_instance.held = make("InInstance")
in_materialised = Plain()
in_materialised.held = make("InMaterialised")
vars(in_materialised)["other"] = 1
in_odd_attribute = Plain()
setattr(in_odd_attribute, "no identifier", make("InOddAttribute"))
in_slot = Slotted()
in_slot.other = make("InSlot")
in_slots_and_dict = SlottedChild()
in_slots_and_dict.held = make("InSlotOfChild")
in_slots_and_dict.own = make("InDictOfChild")
in_deque = collections.deque(range(100))
in_deque.append(make("InDeque"))
in_deque.extend(range(100))
in_bounded_deque = collections.deque([make("InBoundedDeque")], maxlen=150)
in_ordered = collections.OrderedDict(a=1, b=make("InOrderedDict"))
in_default_dict = collections.defaultdict(list)
in_default_dict["x"].append(make("InDefaultDict"))
in_chain_map = collections.ChainMap({"x": make("InChainMap")})
in_partial = functools.partial(print, make("InPartial"), end=make("InPartialKeyword"))
json.decoder.in_package = make("InPackage")
in_context = contextvars.ContextVar("in_context")
in_context.set(make("InContext"))
in_element = xml.etree.ElementTree.Element("element", held=make("InElement"))
xml.etree.ElementTree.SubElement(xml.etree.ElementTree.SubElement(in_element, "a"), "b").set("b", make("InSubelement"))
in_local = threading.local()
in_local.held = make("InThreadLocal")


class InClass:
    held = [make("InClassAttribute")]

    @property
    def prop(self, _held=make("InProperty")):
        return None

    @staticmethod
    def static(_held=make("InStaticMethod")):
        return None


def in_default(_held=make("InDefault"), *, _keyword=make("InKeywordDefault")):
    pass


def closure():
    unused, captured = 1, make("InClosure")
    return lambda: (unused, captured)


in_closure = closure()
in_default.attribute = make("InFunctionAttribute")


@functools.lru_cache(maxsize=None)
def in_lru_cache(number):
    return make("InLruCache")


in_lru_cache(1)


class Owner:
    def method(self):
        pass


owner = Owner()
owner.held = make("InBoundMethod")
in_method = owner.method
del owner


def generator():
    local = make("InGenerator")
    yield
    print(local)


in_generator = generator()
next(in_generator)


def fail():
    local = make("InTraceback")
    raise ValueError(local is None)


try:
    fail()
except ValueError as error:
    in_exception = error



def fail_last():
    local = make("InLastTraceback")
    raise ValueError(local is None)


try:
    fail_last()
except ValueError as error:
    sys.last_value = error

in_arguments = ValueError(make("InExceptionArguments"))
in_iterator = iter([1, make("InIterator")])
in_map = map(make("InMap", type("Callable", (), {"__call__": None})), [1])

weak = make("OnlyWeakly")
in_weak = weakref.ref(weak)
in_weak_values = weakref.WeakValueDictionary(key=weak)

in_view = memoryview(make("InMemoryView", bytearray))

if len(sys.argv) > 1:
    # As an extension in C does it: nothing of Python knows that this variable holds an object.
    library = ctypes.CDLL(sys.argv[1])
    in_static = make("InStaticOfC")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(in_static))
    ctypes.c_void_p.in_dll(library, "held").value = id(in_static)
    del in_static

gc.disable()


def cycle():
    one = make("InCycle", Plain)
    one.itself = [one]


def worker(ready, done):
    in_frame = make("InFrame")
    ready.set()
    done.wait()
    print(in_frame)


async def waiting(reached):
    in_coroutine = make("InCoroutine")
    reached.set()
    await asyncio.Event().wait()
    print(in_coroutine)


def tasks(ready):
    async def main():
        reached = asyncio.Event()
        task = asyncio.ensure_future(waiting(reached))
        await reached.wait()
        ready.set()
        await task

    asyncio.run(main())


class Modules(dict):
    """Modules by name; a builtin otherwise."""

    def __missing__(self, name):
        return sys.modules[name]


def judge():
    for line in sys.stdin:
        number, name, expression = line.rstrip("\n").split(" ", 2)
        try:
            one = eval(expression, Modules())
        except Exception as error:  # Whatever it is, it is wrong.
            print(f"{number} wrong: {error!r}", flush=True)
            continue
        right = type(one).__name__ == name and id(one) == identities[name]
        print(number, "right" if right else f"wrong: {type(one).__name__}", flush=True)
        del one


if __name__ == "__main__":
    cycle()
    del weak
    ready, done = threading.Event(), threading.Event()
    threading.Thread(target=worker, args=(ready, done), daemon=True).start()
    ready.wait()
    ready = threading.Event()
    threading.Thread(target=tasks, args=(ready,), daemon=True).start()
    ready.wait()
    print(f"ready {sys.version_info.minor}", flush=True)
    judge()
