"""
What holds for every test: nothing may be left running behind it, and the developer's environment does not bend it.
"""

import os
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

LEAK_DEADLINE = 10.0
"""Seconds that threads, children and sockets may take to go away; a loaded machine with two cores needs some."""

FOREIGN_THREADS = ("ray_", "AsyncIO Thread", "QueueFeederThread", "pymain", "asyncio_", "ThreadPoolExecutor")
"""Threads of libraries that live as long as the process by design; Ray's come with its first call."""


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith(FOREIGN_THREADS)}


def _children() -> set[int]:
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            # multiprocessing's resource tracker lives as long as the process, on purpose.
            if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline()):
                found.add(child.pid)
        except psutil.Error:
            continue
    return found


def _listeners() -> set[str]:
    connections = psutil.Process().net_connections(kind="all")
    return {f"{item.type.name} {item.laddr}" for item in connections if item.status == psutil.CONN_LISTEN}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Take the developer's own settings away, except those that steer the tests themselves.
    """
    for name in list(os.environ):
        if name.startswith(("STEPSCOPE_", "OTEL_")) and not name.startswith("STEPSCOPE_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """
    Fail a test that leaves a thread, a child process or a listening socket behind.
    """
    before = (_threads(), _children(), _listeners())
    yield
    deadline = time.monotonic() + LEAK_DEADLINE
    waiting = threading.Event()
    while True:
        leaked = [
            *(f"thread {thread.name}" for thread in _threads() - before[0]),
            *(f"child process {pid}" for pid in _children() - before[1]),
            *(f"listening socket {address}" for address in _listeners() - before[2]),
        ]
        if not leaked or time.monotonic() > deadline:
            break
        waiting.wait(0.05)
    assert not leaked, f"left behind: {', '.join(leaked)}"


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """
    Where everything was installed (``STEPSCOPE_TEST_NO_SKIPS``), a skipped test is a failure of the run.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("STEPSCOPE_TEST_NO_SKIPS"):
        return
    skipped = len(reporter.stats.get("skipped", []))
    if skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{skipped} tests were skipped although everything they need should be here", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
