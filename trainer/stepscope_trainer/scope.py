"""
The instrumentation as the loop calls it: the package ``stepscope``, or no-ops when the loop runs without it.

The no-ops have the shape that trainer and rollouter expect, and import nothing of the package: a run without it is the
bare loop.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, cast


class Span(Protocol):
    """
    A span that was begun.
    """

    def set(self, key: str, value: Any) -> None:
        """
        Set an attribute.
        """


class Scope(Protocol):
    """
    What the trainer calls.
    """

    def init(
        self,
        *,
        role: str,
        rank: int = 0,
        world_size: int | None = None,
        param_version: int = 0,
        resumed_from: int | None = None,
        total_steps: int | None = None,
        register_only: bool = False,
    ) -> None:
        """
        This process takes part in the run.
        """

    def shutdown(self, *, timeout: float = 5.0) -> None:
        """
        Close what is open.
        """

    def step(self) -> AbstractContextManager[Any]:
        """
        The step that runs now.
        """

    def weights_published(self, version: int) -> None:
        """
        Every live replica has acknowledged ``version``.
        """

    def span(
        self,
        name: str,
        *,
        bucket: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Any] = (),
        wait_for: str | None = None,
        after_version: int | None = None,
    ) -> AbstractContextManager[Span]:
        """
        A span around a block.
        """

    def link(self, carrier: Mapping[str, str] | None) -> Any:
        """
        A link to the span that ``carrier`` names.
        """

    def consumed(self, *, mini_batch: int, rows: Iterable[tuple[str, int | None, int | None, Any]]) -> None:
        """
        Record which samples a mini-batch consumed.
        """


class NoSpan:
    """
    Does nothing.
    """

    def set(self, key: str, value: Any) -> None:
        """
        Nothing.
        """

    def carrier(self) -> dict[str, str]:
        """
        An empty one.
        """
        return {}

    def end(self) -> None:
        """
        Nothing.
        """


class NoScope:
    """
    Every call of the trainer and of the rollouter, each doing nothing.
    """

    def init(self, **_: Any) -> None:
        """
        Nothing.
        """

    def shutdown(self, *, timeout: float = 5.0) -> None:
        """
        Nothing.
        """

    @contextmanager
    def step(self) -> Iterator[None]:
        """
        A block.
        """
        yield

    def weights_published(self, version: int) -> None:
        """
        Nothing.
        """

    async def ashutdown(self, *, timeout: float = 5.0) -> None:
        """
        Nothing.
        """

    def otlp_endpoint(self) -> str:
        """
        Nowhere.
        """
        return ""

    def inject(self) -> dict[str, str]:
        """
        No place in a run.
        """
        return {}

    def register_profiler(self, profiler: object) -> None:
        """
        Nothing.
        """

    async def aweights_loading(self) -> None:
        """
        Nothing.
        """

    async def aweights_loaded(self, version: int) -> None:
        """
        Nothing.
        """

    @contextmanager
    def span(self, *_: Any, **__: Any) -> Iterator[NoSpan]:
        """
        A block.
        """
        yield NoSpan()

    def start_span(self, *_: Any, **__: Any) -> NoSpan:
        """
        Nothing that has to be ended.
        """
        return NoSpan()

    def link(self, carrier: Mapping[str, str] | None) -> None:
        """
        No link.
        """

    def consumed(self, *, mini_batch: int, rows: Iterable[tuple[str, int | None, int | None, Any]]) -> None:
        """
        Nothing; ``rows`` is not even read.
        """

    async def astart_profiling(self) -> dict[str, str]:
        """
        Nothing can be recorded.
        """
        return {"state": "", "reason": "off", "window": ""}

    async def astop_profiling(self) -> dict[str, str]:
        """
        Nothing is recorded.
        """
        return {"state": "", "reason": "off", "window": ""}


def load(enabled: bool) -> Scope:
    """
    The package, imported now, or the no-ops.
    """
    if not enabled:
        return NoScope()
    import stepscope

    return cast("Scope", stepscope)
