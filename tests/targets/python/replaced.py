"""Code objects take each other's place in memory, without a call of malloc in between, and call the same function at the
same frame: only their contents tell them apart. Two processes with the same addresses do so at the same time, in another
order. ROUNDS blocks are allocated by each of four in each process."""

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
child = os.fork()
shift = 1 if child == 0 else 0
for index in range(ROUNDS * LINES):
    line = (index + shift) % LINES
    code = replace(co_name=names[line], co_firstlineno=1000 + line)
    function = types.FunctionType(code, everything)
    kept[index] = function()
    del function, code
if child != 0:
    os.waitpid(child, 0)
os._exit(0)
