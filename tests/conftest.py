"""
What holds for every test: nothing may be left running behind it, and the developer's environment does not bend it.
"""

import importlib.util
import os
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

LEAK_DEADLINE = 60.0
"""Seconds that threads, children and sockets may take to go away on a busy machine; what has leaked stays for ever."""

collect_ignore = [name for name in ("vllm", "verl") if importlib.util.find_spec(name) is None]
"""The tests that have an environment and a target of their own, where that is not this one."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the run in its background has Ctrl-C ignored, and every process below would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A program of the tests has a Ray of its own, whoever else runs one on this machine; those that join one say which.
os.environ["RAY_ADDRESS"] = "local"

ELSEWHERE = "the shared recordings are not beside this repository"
"""Why tests skip that read real recordings, which are too large and not ours to be in it."""

FOREIGN_THREADS = (
    "ray_",
    "AsyncIO Thread",
    "QueueFeederThread",
    "pymain",
    "asyncio_",
    "ThreadPoolExecutor",
    "tqdm_monitor",
)
"""Threads of libraries that live as long as the process by design; Ray's come with its first call."""

SHARED = ("tests.integration.ray_cluster", "tests.integration.measured_loop", "--remote-debugging-pipe")
"""
A Ray, a run or a browser that the tests of a module share starts and ends processes when it likes; its fixture ends
them, too.
"""


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith(FOREIGN_THREADS)}


def _children() -> set[int]:
    found: set[int] = set()
    theirs: set[int] = set()
    for child in psutil.Process().children(recursive=True):
        try:
            command = " ".join(child.cmdline())
            if any(shared in command for shared in SHARED):
                theirs.update(worker.pid for worker in child.children(recursive=True))
            # multiprocessing's resource tracker lives as long as the process, on purpose.
            if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in command:
                found.add(child.pid)
        except psutil.Error:
            continue
    return found - theirs


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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Modules with slow tests go first, in the order they have: several workers end together if the short ones are last.
    """
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """
    Where everything was installed (``STEPSCOPE_TEST_NO_SKIPS``), a skipped test fails the run; but for recordings that
    are no part of the repository, which nothing can install.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("STEPSCOPE_TEST_NO_SKIPS"):
        return
    skipped = sum(ELSEWHERE not in str(report.longrepr) for report in reporter.stats.get("skipped", []))
    if skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{skipped} tests were skipped although everything they need should be here", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
