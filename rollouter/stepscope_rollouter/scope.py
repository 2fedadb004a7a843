"""
What a rollouter calls of the instrumentation. The job passes the package ``stepscope`` in, or no-ops of this shape.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol


class Span(Protocol):
    """
    A span that was begun.
    """

    def set(self, key: str, value: object) -> None:
        """
        Set an attribute.
        """

    def carrier(self) -> dict[str, str]:
        """
        Its context, to travel with a payload.
        """

    def end(self) -> None:
        """
        End it.
        """


class Scope(Protocol):
    """
    The boundary calls and spans.
    """

    def init(
        self,
        *,
        role: str,
        rank: int,
        world_size: int | None,
        param_version: int,
        resumed_from: int | None,
        total_steps: int | None,
    ) -> None:
        """
        This process takes part in the run.
        """

    async def ashutdown(self, *, timeout: float) -> None:
        """
        Close what is open, an engine's profiler included.
        """

    def otlp_endpoint(self) -> str:
        """
        Where an engine sends spans of its own; empty for nowhere.
        """

    def inject(self) -> dict[str, str]:
        """
        A carrier of this process's place in the run.
        """

    def register_profiler(self, profiler: object) -> None:
        """
        Offer an engine's profiler to the windows of this process.
        """

    async def aweights_loading(self) -> None:
        """
        The weights are about to change.
        """

    async def aweights_loaded(self, version: int) -> None:
        """
        Weights ``version`` are in force.
        """

    def span(
        self, name: str, *, bucket: str | None, attributes: Mapping[str, object] | None, after_version: int | None
    ) -> AbstractContextManager[Span]:
        """
        A span around a block.
        """

    def start_span(
        self,
        name: str,
        *,
        bucket: str | None,
        attributes: Mapping[str, object] | None,
        wait_for: str | None,
        request: bool,
    ) -> Span:
        """
        A span that is ended by hand.
        """

    async def astart_profiling(self) -> dict[str, str]:
        """
        Record from now on.
        """

    async def astop_profiling(self) -> dict[str, str]:
        """
        Stop recording.
        """
