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
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile

import pytest

# Set in the process that runs the test.
INSIDE = "MEMTRACE_PYTEST"
# Set there if the test has rounds: the descriptor on which they are reported.
ROUNDS = "MEMTRACE_ROUNDS"
FAILED = 99

WARM_UP = 3

STATUS = pytest.StashKey()


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "memtrace(*conditions, rounds=0, warm_up=3): fail if a condition of `memtrace run --fail-on` holds, such as "
        "'live=50m', or 'leak' with rounds=10: the test runs again and again, and no line may keep memory of each round",
    )


def pytest_sessionfinish(session, exitstatus):
    session.config.stash[STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    if INSIDE in os.environ and STATUS in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[STATUS])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    marker = item.get_closest_marker("memtrace")
    if marker is None or INSIDE in os.environ:
        return None
    about = {"nodeid": item.nodeid, "location": item.location}
    item.ihook.pytest_runtest_logstart(**about)
    call = pytest.CallInfo.from_call(lambda: run(item, marker.args, **marker.kwargs), "call")
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
    report = Reporter(int(os.environ[ROUNDS]))
    for _ in range(marker.kwargs.get("warm_up", WARM_UP)):
        item.runtest()
    report.round()
    rounds = marker.kwargs["rounds"]
    for left in reversed(range(rounds)):
        item.runtest()
        report.round(is_last=not left)


class Reporter:
    """Reports the end of each round to memtrace."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)

    def round(self, is_last=False):
        # What pytest keeps of a test's log until its end is none of the test's own.
        for handler in logging.getLogger().handlers:
            if hasattr(handler, "records"):
                handler.reset()
        clear_caches()
        gc.collect()
        try:
            self.socket.sendall(b"e" if is_last else b"r")
            # Nothing is read if memtrace is gone.
            self.socket.recv(1)
        except OSError:
            pass


def clear_caches():
    """Empties caches of Python itself, which have a limit and may fill for many rounds."""
    re.purge()
    clear = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
    clear()


def run(item, conditions, rounds=0, warm_up=WARM_UP):
    """Runs a test under memtrace; fails if it does, or if a condition holds."""
    own, theirs = socket.socketpair()
    with own, theirs, tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        line = [program(), "run", "--exit-code", str(FAILED), "--json", result]
        line += [f"--fail-on={condition}" for condition in conditions]
        environment = {**os.environ, INSIDE: "1"}
        if rounds:
            line += ["--python-objects", f"--rounds={own.fileno()}"]
            environment[ROUNDS] = str(theirs.fileno())
        line += ["--", sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        line += [f"--rootdir={item.config.rootpath}", item.nodeid]
        done = subprocess.run(
            line,
            cwd=item.config.rootpath,
            env=environment,
            pass_fds=[own.fileno(), theirs.fileno()] if rounds else [],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = [line for line in done.stdout.splitlines() if line.startswith("memtrace: ")]
        item.add_report_section("call", "memtrace", "\n".join(said))
        if done.returncode == FAILED:
            with open(result) as file:
                pytest.fail(reasons(json.load(file)), pytrace=False)
        if done.returncode != 0:
            pytest.fail(done.stdout, pytrace=False)


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
