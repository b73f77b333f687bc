"""Plugin for pytest (7 or later): a test that fails if its memory leaks or grows.

    @pytest.mark.memtrace("leak", rounds=10)
    def test_request(): ...

    @pytest.mark.memtrace("live=50m")
    def test_cache(): ...

Such a test runs in a process of its own under `memtrace run --fail-on CONDITION`, which needs root. That process ends
without Python's cleanup, so memory that is still referenced is live at the end.

With `rounds`, the test's body runs `warm_up` times and then that many times more, and `leak` means that a line keeps
memory of each round. Python's objects are then allocations of their own, which is slower and exact.
"""

import gc
import json
import logging
import os
import pickle
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
import warnings

import pytest
from _pytest.logging import LogCaptureHandler

# Set in the process that runs the test.
INSIDE = "MEMTRACE_PYTEST"
# Set there if the test has rounds: the descriptor on which they are reported.
ROUNDS = "MEMTRACE_ROUNDS"
# Set there: the file with the values of the options that conftest files define.
OPTIONS = "MEMTRACE_PYTEST_OPTIONS"
# Exit statuses: a condition holds; the test did not run to its end, and did not fail either.
FAILED = 99
SKIPPED = 98

WARM_UP = 3
# What memtrace needs to decide, and what it keeps at most.
LEAST_ROUNDS = 6
MOST_ROUNDS = 998

STATUS = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if OPTIONS in os.environ:
        with open(os.environ.pop(OPTIONS), "rb") as file:
            vars(config.option).update(pickle.load(file))
    config.addinivalue_line(
        "markers",
        "memtrace(*conditions, rounds=0, warm_up=3): fail if a condition of `memtrace run --fail-on` holds, such as "
        "'live=50m', or 'leak' with rounds=10: the test runs again and again, and no line may keep memory of each round",
    )


def pytest_sessionfinish(session, exitstatus):
    session.config.stash.setdefault(STATUS, int(exitstatus))


def pytest_runtest_logreport(report):
    if INSIDE in os.environ and report.skipped:
        skipped.append(report)


skipped = []


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    if INSIDE in os.environ and STATUS in config.stash:
        # As at any exit of Python: ends daemons that would outlive the test.
        if "multiprocessing.util" in sys.modules:
            sys.modules["multiprocessing.util"]._exit_function()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[STATUS] or (SKIPPED if skipped else 0))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    marker = item.get_closest_marker("memtrace")
    if marker is None or INSIDE in os.environ:
        return None
    about = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**about)
    call = pytest.CallInfo.from_call(lambda: run(item, marker), "call")
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    item.ihook.pytest_runtest_logreport(report=report)
    # Fixtures that the tests before have in common with the next one stay; others end here.
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(**about)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    """Runs the rounds of the test, before pytest runs it once more for its result."""
    marker = item.get_closest_marker("memtrace")
    if marker is None or ROUNDS not in os.environ:
        return
    rounds, warm_up = settings(marker)
    with socket.socket(fileno=int(os.environ[ROUNDS])) as memtrace:
        for to_come in reversed(range(-rounds, warm_up + 1)):
            if to_come <= 0:
                forget(item)
                report(memtrace, b"e" if to_come == -rounds else b"r")
            if to_come > -rounds:
                # Otherwise pytest keeps the warnings of all rounds.
                with warnings.catch_warnings(record=True):
                    item.runtest()
            if getattr(item, "_excinfo", None):
                # A test of unittest has failed, or was skipped.
                return


def report(memtrace, end):
    """Reports the end of a round. memtrace may be gone."""
    try:
        memtrace.sendall(end)
        memtrace.recv(1)
    except OSError:
        pass


def forget(item):
    """Empties what pytest keeps for its report, and caches of Python itself, which may fill for many rounds."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogCaptureHandler):
            handler.reset()
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if capture is not None and capture.is_globally_capturing():
        capture.read_global_capture()
    for name in "capsys", "capfd", "capsysbinary", "capfdbinary":
        if name in getattr(item, "funcargs", {}):
            item.funcargs[name].readouterr()
    re.purge()
    for name in "_clear_internal_caches", "_clear_type_cache":
        if hasattr(sys, name):
            getattr(sys, name)()
            break
    gc.collect()


def settings(marker):
    """The rounds and the warm-up of a mark."""
    given = {"rounds": 0, "warm_up": WARM_UP, **marker.kwargs}
    rounds, warm_up = given.pop("rounds"), given.pop("warm_up")
    wrong = None
    if given:
        wrong = f"has no argument `{next(iter(given))}`"
    elif type(rounds) is not int or rounds and not LEAST_ROUNDS <= rounds <= MOST_ROUNDS:
        wrong = f"needs {LEAST_ROUNDS} to {MOST_ROUNDS} rounds, or 0, not {rounds!r}"
    elif type(warm_up) is not int or not 0 <= warm_up <= MOST_ROUNDS:
        wrong = f"needs 0 to {MOST_ROUNDS} as warm_up, not {warm_up!r}"
    if wrong:
        pytest.fail(f"the mark `memtrace` {wrong}", pytrace=False)
    return rounds, warm_up


def run(item, marker):
    """Runs a test under memtrace; fails if it does, or if a condition holds."""
    rounds, _ = settings(marker)
    own, theirs = socket.socketpair()
    with own, theirs, tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        result = os.path.join(folder, "result.json")
        line = [program(), "run", "--exit-code", str(FAILED), "--json", result]
        line += [f"--fail-on={condition}" for condition in marker.args or ["leak"]]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_XDIST")}
        environment[INSIDE] = "1"
        if rounds:
            line += ["--python-objects", f"--rounds={own.fileno()}"]
            environment[ROUNDS] = str(theirs.fileno())
        line += ["--", sys.executable, "-m", "pytest", *options(item.config), item.nodeid]
        environment[OPTIONS] = os.path.join(folder, "options")
        with open(environment[OPTIONS], "wb") as file:
            pickle.dump(options_of_conftests(item.config), file)
        # Not a pipe: a process that outlives the test may hold it open.
        status = subprocess.run(
            line,
            cwd=item.config.rootpath,
            env=environment,
            pass_fds=[own.fileno(), theirs.fileno()] if rounds else [],
            stdout=output,
            stderr=subprocess.STDOUT,
        ).returncode
        output.seek(0)
        said = output.read()
        notes = [line for line in said.splitlines() if line.startswith("memtrace: ")]
        item.add_report_section("call", "memtrace", "\n".join(notes))
        if status == FAILED:
            with open(result) as file:
                pytest.fail(reasons(json.load(file)), pytrace=False)
        if status == SKIPPED:
            pytest.skip("the test was skipped, or failed as expected: see its own marks")
        if status != 0:
            pytest.fail(said, pytrace=False)
        if rounds:
            with open(result) as file:
                reported = [of["rounds"] for of in json.load(file)["conditions"] if of["condition"] == "leak"]
            if any(of != rounds for of in reported):
                pytest.fail(f"the test did not report its {rounds} rounds: is the plugin active?\n{said}", pytrace=False)


def options(config):
    """The options of pytest itself that may change what a test does."""
    given = config.option
    line = ["-p", "no:cacheprovider", f"--rootdir={config.rootpath}", f"--import-mode={given.importmode}"]
    line += ["-c", str(config.inipath)] if config.inipath else []
    for option, values in ("-o", given.override_ini), ("-p", given.plugins), ("-W", given.pythonwarnings):
        line += [word for value in values or [] for word in (option, value)]
    return line + (["-n0"] if config.pluginmanager.hasplugin("xdist") else [])


def options_of_conftests(config):
    """The values of the options that conftest files define. Plugins have groups of their own."""
    names = [option.dest for option in config._parser._anonymous.options]
    return {name: value for name, value in vars(config.option).items() if name in names}


def reasons(result):
    """A line for each condition that holds, and the recording."""
    lines = []
    for of in result["conditions"]:
        if of["state"] == "failed":
            limit = "" if of["limit"] is None else f", more than {of['limit']:,} {of['unit']}"
            measured = "" if of["measured"] is None else f": {of['measured']:,} {of['unit']}"
            lines.append(f"memtrace: {of['condition']}{measured}{limit}")
            lines += [f"  allocated by  {of['line']}"] if of["line"] else []
            lines += [f"  {of['kept_by']}"] if of["kept_by"] else []
    return "\n".join(lines + [f"  recording     {result['recording']}"])


def program():
    """The program of the wheel, or another one in PATH."""
    own = os.path.join(sysconfig.get_path("scripts"), "memtrace")
    return own if os.path.exists(own) else "memtrace"
