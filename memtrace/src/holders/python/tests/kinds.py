"""Objects that are held in every way there is. Writes name and address of each, then ids of all objects that the
collector knows; answers expressions with the address of what they give."""
import array
import asyncio
import atexit
import collections
import contextvars
import functools
import gc
import itertools
import json.decoder
import sys
import threading
import types
import weakref

gc.disable()
marks = []


class Target:
    pass


def mark(name):
    target = Target()
    marks.append((name, id(target)))
    return target


in_list = [None] * 200 + [mark("list")]
in_dict = {
    "a": mark("dict str"),
    7: mark("dict int"),
    -(1 << 70): mark("dict large int"),
    ("x", 1): mark("dict tuple"),
    b"k": mark("dict bytes"),
    1.5: mark("dict float"),
    None: mark("dict None"),
    True: mark("dict bool"),
    "it's": mark("dict quote"),
    "é": mark("dict latin"),
    "日本": mark("dict wide"),
}
by_object = {mark("dict key"): 1, Target(): mark("dict object")}
only_str = {"one": 1, "two": mark("dict of str only")}
nested = {"deep": {"er": [(mark("nested"),)]}}
in_set = {mark("set"), *(("many", i) for i in range(50))}
small_set = frozenset([mark("frozenset")])
in_tuple = (1, mark("tuple"))


class Named(collections.namedtuple("Named", "x")):
    __slots__ = ()


named = Named(mark("namedtuple"))


class Split:
    def __init__(self, held):
        self.first = 1
        self.held = held


split = Split(mark("split dict"))
materialised = Split(mark("materialised dict"))
materialised.__dict__
many = Split(1)
for i in range(60):
    setattr(many, f"a{i}", i)
many.held = mark("large instance")


class Slotted:
    __slots__ = ("held", "__weakref__")


slotted = Slotted()
slotted.held = mark("slots")


class SlottedAndDict(Slotted):
    pass


both = SlottedAndDict()
both.held = mark("slots of base")
both.other = mark("dict beside slots")


class List(list):
    pass


class Text(str):
    pass


class Number(int):
    pass


class Bytes(bytes):
    pass


class Pair(tuple):
    pass


class Map(dict):
    pass


class Elements(set):
    pass


list_subclass = List([mark("list subclass")])
list_subclass.held = mark("attribute of list")
text = Text("x" * 13)
text.held = mark("attribute of str")
number = Number(1 << 100)
number.held = mark("attribute of int")
raw = Bytes(b"12345")
raw.held = mark("attribute of bytes")
pair = Pair((1, mark("tuple subclass"), 3))
pair.held = mark("attribute of tuple")
map_subclass = Map(k=mark("dict subclass"))
map_subclass.held = mark("attribute of dict")
elements = Elements([mark("set subclass")])
elements.held = mark("attribute of set")


def outer():
    unused, variable = 1, mark("closure")

    def inner():
        return unused, variable

    return inner


closure = outer()


def defaults(a=mark("default"), *, b=mark("keyword default")):
    pass


defaults.attribute = mark("function attribute")


class Meta(type):
    pass


class Class(metaclass=Meta):
    attribute = mark("class attribute")

    @staticmethod
    def static(a=mark("static method")):
        pass

    def method(self, a=mark("method default")):
        pass

    @property
    def attribute_of(self, a=mark("property")):
        pass


json.decoder.held = mark("package's global")


def generate():
    local = mark("generator local")
    yield local
    yield 1


generator = generate()
next(generator)


def loop():
    for _ in iter([mark("generator operand")]):
        del _
        yield


looping = loop()
next(looping)


class Suspend:
    def __await__(self):
        yield


async def leaf():
    local = mark("awaited local")
    await Suspend()
    return local


async def waiting():
    await leaf()


coroutine = waiting()
coroutine.send(None)


async def async_generate():
    local = mark("async generator local")
    yield local


async_generator = async_generate()
try:
    async_generator.__anext__().send(None)
except StopIteration:
    pass

thread_local = threading.local()
thread_local.held = mark("thread-local")


@functools.lru_cache(maxsize=8)
def cached(x):
    return mark("lru_cache")


@functools.lru_cache(maxsize=None)
def cached_unbounded(x):
    return mark("lru_cache unbounded")


@functools.lru_cache
def cached_argument(x):
    return 1


cached(1), cached_unbounded(1), cached_argument(mark("lru_cache argument"))
partial = functools.partial(print, mark("partial argument"), key=mark("partial keyword"))
queue = collections.deque(range(200))
queue.append(mark("deque"))
queue.extend(range(3))
bounded_queue = collections.deque(range(9), maxlen=5)
ordered = collections.OrderedDict(a=1, b=mark("OrderedDict"))
ordered.held = mark("attribute of OrderedDict")
default_dict = collections.defaultdict(functools.partial(int, mark("default_factory")))
default_dict["k"] = mark("defaultdict")
counter = collections.Counter({mark("Counter"): 1})
chain = collections.ChainMap({"k": mark("ChainMap")})
view = {"k": mark("dict view")}.items()
iterator = iter([mark("list iterator")])
chained = itertools.chain([mark("itertools")], [2])
mapped = map(functools.partial(print, mark("map")), [1])
namespace = types.SimpleNamespace(held=mark("SimpleNamespace"))
proxy = types.MappingProxyType({"k": mark("mappingproxy")})
bound = Split(mark("bound method")).__init__
appends = [mark("builtin method")].append
variable = contextvars.ContextVar("variable")
variable.set(mark("context variable"))
context = contextvars.copy_context()
for i in range(100):
    context.run(contextvars.ContextVar(f"v{i}").set, i)
later = contextvars.ContextVar("later")
context.run(later.set, mark("large context"))
atexit.register(print, mark("atexit"))


class Failure(Exception):
    pass


def fail():
    local = mark("traceback frame")
    raise Failure(mark("exception argument"))


try:
    try:
        fail()
    except Failure as error:
        raise ValueError from error
except ValueError as error:
    sys.last_value = error


class View(bytearray):
    pass


viewed = View(5000)
viewed.held = mark("memoryview's object")
window = memoryview(viewed)
numbers = array.array("d", range(1000))
growing = bytearray(100_000)

dead = Target()
values = weakref.WeakValueDictionary(k=dead)
keeps_nothing = mark("cycle")
keeps_nothing.itself = keeps_nothing
weak_to_cycle = weakref.ref(keeps_nothing)
del keeps_nothing
called = weakref.ref(dead, functools.partial(print, mark("weak callback")))


async def sleeper():
    local = mark("task local")
    await asyncio.get_running_loop().create_future()
    return local


async def run():
    task = asyncio.ensure_future(sleeper())
    marks.append(("task", id(task)))
    done = asyncio.get_running_loop().create_future()
    done.set_result(mark("future result"))
    sys.held_future = done
    await asyncio.sleep(0)
    sys.held_task = task


event_loop = asyncio.new_event_loop()
event_loop.run_until_complete(run())


def thread():
    local = mark("thread local variable")
    threading.local_of_thread = threading.local()
    threading.local_of_thread.held = mark("thread-local of another thread")
    for item in iter([mark("loop")]):
        ready.set()
        stop.wait()
    return local


ready, stop = threading.Event(), threading.Event()
threading.Thread(target=thread, daemon=True).start()
ready.wait()


def talk(local):
    try:
        raise Failure(mark("handled exception"))
    except Failure:
        print(len(marks))
        for name, address in marks:
            print(name, address, sep="=")
        known = [id(it) for it in gc.get_objects()]
        print(len(known))
        print(*known, sep="\n", flush=True)
        del known, name, address
        names = dict(sys.modules)
        for line in sys.stdin:
            try:
                print(id(eval(line, names)), flush=True)
            except Exception as error:
                print(repr(error), flush=True)


talk(mark("local"))
