"""
The stand-in for torch_npu in this process: installing it, taking it away, and looking at what it was told.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepscope.names import Level
from stepscope.profilers import Request
from tests.standins import signatures

STANDINS = Path(signatures.__file__).parent


@contextmanager
def absent() -> Iterator[None]:
    """
    No torch_npu is imported, before and after.
    """
    _forget()
    yield
    _forget()


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_npu"]:
        del sys.modules[name]


def part(name: str) -> Any:
    """
    A module of the stand-in.
    """
    return importlib.import_module(f"torch_npu.{name}")


def window(folder: Path, level: Level = Level.SPANS, *, roaming: bool = False) -> Request:
    """
    A window to record in ``folder``.
    """
    folder.mkdir(exist_ok=True)
    return Request(window="w1", level=level, folder=folder, roaming=roaming, rank=3)


def elsewhere(work: Callable[[], object]) -> list[BaseException]:
    """
    What ``work`` raises on another thread.
    """
    raised: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - told to the test
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(10)
    return raised
