"""
Stand-ins for profilers: they note what is asked of them and leave a small file.
"""

import asyncio
from collections.abc import Mapping

from stepscope.profilers import Armed, Recording, Request


class FakeProfiler:
    """
    A synchronous one. Set ``error`` to have the next call of that name raise it.
    """

    def __init__(self, name: str = "torch", *, thread_bound: bool = False) -> None:
        self._name = name
        self.thread_bound = thread_bound
        self.calls: list[str] = []
        self.metadata: dict[str, str] = {}
        self.errors: dict[str, Exception] = {}
        self.is_foreign = False
        self.roaming: list[bool] = []

    @property
    def name(self) -> str:
        """
        The tool's name.
        """
        return self._name

    def unavailable(self) -> str | None:
        """
        Always available.
        """
        return None

    def foreign(self) -> bool:
        """
        Whether somebody else's runs: as set.
        """
        return self.is_foreign

    def prepare(self) -> None:
        """
        Note it.
        """
        self._call("prepare")

    def start(self, request: Request) -> Armed:
        """
        Start at the level asked for.
        """
        self.roaming.append(request.roaming)
        self._call("start")
        return Armed(level=request.level, thread_bound=self.thread_bound, all_threads=not self.thread_bound)

    def describe(self, metadata: Mapping[str, str]) -> None:
        """
        Keep it.
        """
        self.metadata.update(metadata)

    def enter(self, label: str) -> object:
        """
        Note a mark's begin.
        """
        self._call(f"enter {label}")
        return label

    def exit(self, handle: object) -> None:
        """
        Note a mark's end.
        """
        self._call(f"exit {handle}")

    def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Leave a file.
        """
        self._call("stop")
        if keep:
            (request.folder / "recording.json").write_text("{}")
        return Recording(artifact="recording.json" if keep else "", stall={"stop": 0.5, "export": 0.25})

    def abandon(self) -> None:
        """
        Note it.
        """
        self._call("abandon")

    def _call(self, what: str) -> None:
        self.calls.append(what)
        if what in self.errors:
            raise self.errors.pop(what)


class FakeEngine:
    """
    One whose start and stop are coroutines. ``hang`` makes them wait for ever.
    """

    name = "engine"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.hang = False

    def unavailable(self) -> str | None:
        """
        Always available.
        """
        return None

    async def start(self, request: Request) -> Armed:
        """
        Start at the level asked for.
        """
        await self._call("start")
        return Armed(level=request.level, marks=False)

    async def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Leave a file.
        """
        await self._call("stop")
        (request.folder / "engine.json").write_text("{}")
        return Recording(artifact="engine.json")

    async def _call(self, what: str) -> None:
        self.calls.append(what)
        if self.hang:
            await asyncio.Event().wait()
