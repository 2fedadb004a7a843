"""
A program that trains with profilers that fail, each in its own way and in a role named for it.

Run as ``python -m tests.integration.failing_profilers``. The profilers are stand-ins; each row says that a role got
through its steps.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path

import stepscope
from stepscope import recorder
from stepscope.profilers import Armed, Recording, Request, guarded
from stepscope.profilers.torch import RAW, TorchProfiler
from tests.unit.stepscope.fake_profiler import FakeEngine, FakeProfiler

DEADLINE = 15.0
"""Seconds after which a call hangs: a tenth of a second would do, but not on a machine that is busy."""

ARTIFACT = "recording.bin"


class StandIn(FakeProfiler):
    """
    One whose start and stop do as told.
    """

    def __init__(
        self,
        name: str,
        *,
        at_start: Callable[[], object] = bool,
        at_stop: Callable[[], object] = bool,
        leaves: bytes | None = b"recorded",
    ) -> None:
        super().__init__(name)
        self._at_start = at_start
        self._at_stop = at_stop
        self._leaves = leaves

    def start(self, request: Request) -> Armed:
        """
        Start, or what it does instead.
        """
        self._at_start()
        return super().start(request)

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop, or what it does instead.
        """
        self._at_stop()
        if keep and self._leaves is not None:
            (request.folder / ARTIFACT).write_bytes(self._leaves)
        return Recording(artifact=ARTIFACT if keep else "")


class HangingEngine(FakeEngine):
    """
    An engine whose profiler starts and never stops.
    """

    name = "x-engine"

    async def start(self, request: Request) -> Armed:
        """
        Start, and hang from then on.
        """
        armed = await super().start(request)
        self.hang = True
        return armed


class Truncated(TorchProfiler):
    """
    The torch profiler on a disk that loses the second half of what it writes.
    """

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop, and cut the file.
        """
        recording = super().stop(request, keep=keep)
        if keep:
            path: Path = request.folder / RAW
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        return recording


def hang() -> None:
    """
    Wait for what never comes.
    """
    threading.Event().wait()


def fail() -> None:
    """
    Raise what no profiler should.
    """
    raise RuntimeError("no such counter")


PROFILERS: dict[str, Callable[[], object]] = {
    "fine": lambda: StandIn("x-fine"),
    "start-hangs": lambda: StandIn("x-start-hangs", at_start=hang),
    "start-raises": lambda: StandIn("x-start-raises", at_start=fail),
    "stop-hangs": lambda: StandIn("x-stop-hangs", at_stop=hang),
    "stop-raises": lambda: StandIn("x-stop-raises", at_stop=fail),
    "empty": lambda: StandIn("x-empty", leaves=b""),
    "absent": lambda: StandIn("x-absent", leaves=None),
    "engine": HangingEngine,
    "truncated": Truncated,
}
"""By role."""

TOOLS = {role: "torch" if role == "truncated" else f"x-{role}" for role in PROFILERS}


async def in_a_loop() -> None:
    """
    Two steps of an engine's.
    """
    for version in (1, 2):
        async with stepscope.step():
            await stepscope.aweights_published(version)


def main() -> None:
    """
    Two steps in each role.
    """
    guarded.DEADLINE = recorder.ENGINE_DEADLINE = DEADLINE
    for role, make in PROFILERS.items():
        stepscope.init(role=role, total_steps=2)
        stepscope.register_profiler(make())
        if role == "engine":
            asyncio.run(in_a_loop())
        else:
            for version in (1, 2):
                with stepscope.step():
                    stepscope.weights_published(version)
        print(json.dumps({"role": role, "version": stepscope.current_version()}), flush=True)


if __name__ == "__main__":
    main()
