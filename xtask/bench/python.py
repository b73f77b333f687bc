"""Target of `cargo xtask bench`: work of Python programs. Says "ready", waits for a line on stdin, does its work,
prints ms per iteration.

    python.py json|dicts|regex|import COUNT

An iteration takes some milliseconds."""

import importlib
import json
import re
import sys
import time

MODULES = ("argparse", "asyncio", "email.message", "http.server", "unittest", "xml.dom.minidom")
# The packages that those import and that are in Python: imported anew each time, also if a tool that
# runs this file has imported them already.
PACKAGES = {
    "argparse", "asyncio", "concurrent", "difflib", "email", "gettext", "html", "http", "locale", "logging",
    "mimetypes", "pprint", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "string", "subprocess",
    "tempfile", "textwrap", "traceback", "unittest", "urllib", "xml",
}


def to_json_and_back():
    records = [{"id": i, "name": f"user {i}", "tags": ["a", "b", str(i)], "score": i / 7} for i in range(500)]
    return json.loads(json.dumps(records))


def dicts():
    table = {}
    for i in range(5000):
        table[f"key {i % 2000}"] = {"number": i, "square": i * i, "list": [i] * 8}
    return sorted(table.items(), key=lambda item: item[1]["square"])


TEXT = "The 12 quick foxes <a@example.org> jump over 7 lazy dogs <b@example.com> at 10:45. " * 100


def regex():
    # Python caches compiled patterns.
    re.purge()
    pattern = re.compile(r"<(?P<user>\w+)@(?P<host>[\w.]+)>|(\d+):(\d+)|(\d+)")
    return [match.groupdict() for match in pattern.finditer(TEXT)], pattern.sub("-", TEXT)


def imports():
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]
    for name in MODULES:
        importlib.import_module(name)


WORK = {"json": to_json_and_back, "dicts": dicts, "regex": regex, "import": imports}

work, count = WORK[sys.argv[1]], int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
# The first iteration reads files and fills caches.
work()
begin = time.perf_counter()
for _ in range(count):
    work()
print((time.perf_counter() - begin) * 1000 / count, flush=True)
