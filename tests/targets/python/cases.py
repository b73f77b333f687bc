"""Allocates below Python frames that it knows, and ends by 7.

cases.py hold|run PROBE TRUTH MODULE...
    the modules' cases, with the library PROBE (probe.c); the truth is written to TRUTH (truth.py);
    `hold`: does not end before its input does
"""

import importlib
import os
import sys

# Enough for the interpreter to replace instructions by specialised ones.
TURNS = 40


def main():
    how, os.environ["PROBE"], os.environ["TRUTH"], *modules = sys.argv[1:]
    import truth

    print("ready", flush=True)
    truth.warm_up()
    for name in modules:
        module = importlib.import_module(name)
        for case in module.REPEATED:
            for _ in range(TURNS):
                case()
        for case in module.ONCE:
            case()
    truth.write()
    print("done", flush=True)
    if how == "hold":
        sys.stdin.read()
    sys.exit(7)


if __name__ == "__main__":
    main()
