"""Code whose names, files and lines are out of the ordinary."""

import importlib
import os
import sys
import tempfile

from truth import note, probe


def defined(source, file="<string>", name="made"):
    """The function of this name that a source has."""
    names = {"probe": probe, "note": note}
    exec(compile(source, file, "exec"), names)
    return names[name]


KEPT = []


def kept(function):
    """Names too long for a record are read from the process afterwards, so they must still be there."""
    KEPT.append(function)
    return function


def evaluated():
    exec("probe(note())")
    eval("probe(note())")
    eval("(lambda: probe(note()))()")
    exec("def made():\n\n  probe(note())\nmade()", {"probe": probe, "note": note})


def größe():
    probe(note())


def 函数():
    probe(note())


def 𠀀𐐀():
    größe()
    函数()


class Größe:
    def 函数(self):
        𠀀𐐀()


def letters():
    Größe().函数()


def long_names():
    for letter in "aß函𠀀":
        for length in (63, 64, 65, 127, 128, 129, 255, 256, 257, 1000):
            name = letter * length
            kept(defined("def %s(): probe(note())" % name, "/" + name + ".py", name))()


def odd_files():
    for file in (
        "/größe/函数/𠀀𝔘.py",
        '/a "quoted"\\name\n\t\x7f\x01.py',
        "/undecodable-\udcff.py",
        "",
        " ",
    ):
        defined("def made(): probe(note())", file)()


def unspeakable_names():
    made = defined("def made(): probe(note())")
    for name in ("𝔘 not normalised", "with\nline", "a;b", "undecodable-\udcff"):
        named = {"co_name": name}
        if sys.version_info >= (3, 11):
            named["co_qualname"] = name
        made.__code__ = made.__code__.replace(**named)
        made()


def many_lines():
    # Far from the file's beginning, far from the function's, and with a long line table.
    kept(defined("\n" * 100_000 + "def made(): probe(note())"))()
    kept(defined("def made():\n" + "\n" * 1000 + " probe(note())\n" + "\n" * 70_000 + " probe(note())"))()
    for length in (200, 500, 3000):
        body = " probe(note())\n" + " a = b = 1\n" * length + " probe(note())\n"
        kept(defined("def made():\n" + body))()


def short_lived():
    """Code objects that take one another's place, as alike as can be."""
    seen = {}
    reused = 0
    for number in range(400):
        name = "short_%03d" % number
        names = {"probe": probe, "note": note}
        exec(compile("def %s(): probe(note())" % name, "<%03d>" % number, "exec"), names)
        names[name]()
        address = id(names[name].__code__)
        reused += address in seen
        seen[address] = number
        names.clear()
    if reused < 100:
        raise RuntimeError("addresses are not reused: %d" % reused)


def replaced_in_place():
    """One function that becomes others."""

    def made():
        probe(note())

    for number in range(100):
        made.__code__ = compile(
            "def other_%d():\n%s probe(note())" % (number, "\n" * number), "<others>", "exec"
        ).co_consts[0]
        made()


def imported():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("größe_函数", "𠀀𐐀"):
            with open(os.path.join(folder, name + ".py"), "w", encoding="utf-8") as file:
                file.write("from truth import note, probe\n\nprobe(note())\n")
        sys.path.insert(0, folder)
        try:
            importlib.import_module("größe_函数")
            import 𠀀𐐀
        finally:
            sys.path.remove(folder)


REPEATED = [evaluated, letters]
ONCE = [
    long_names,
    odd_files,
    unspeakable_names,
    many_lines,
    short_lived,
    replaced_in_place,
    imported,
]
