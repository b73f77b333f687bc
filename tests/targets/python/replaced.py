"""Code objects take each other's place in memory, without a call of malloc in between, and call the same function at the
same frame: only their contents tell them apart. ROUNDS blocks are allocated by each of four."""

import gc
import os
import types

ROUNDS = 500
LINES = 4

gc.disable()


def base():
    return bytearray(50_000)


names = ["base%d" % number for number in range(LINES)]
kept = [None] * (ROUNDS * LINES)
everything = globals()
replace = base.__code__.replace
for index in range(ROUNDS * LINES):
    code = replace(co_name=names[index % LINES], co_firstlineno=1000 + index % LINES)
    function = types.FunctionType(code, everything)
    kept[index] = function()
    del function, code
os._exit(0)
