"""
Traces made by hand, of a few events, for tests of what is computed from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stepscope_sidecar.traces import NONE, Collective, Flag, Header, Kind, Trace
from stepscope_sidecar.traces.columns import Columns

THREAD = 7
"""A thread of process 1."""


@dataclass
class Timeline:
    """
    A trace in the making; times are nanoseconds.
    """

    columns: Columns = field(default_factory=Columns)

    def host(
        self,
        kind: Kind,
        name: str,
        start: int,
        end: int,
        *,
        thread: int = THREAD,
        correlation: int = NONE,
        external: int = NONE,
    ) -> "Timeline":
        """
        Something on the host.
        """
        return self._add(kind, name, start, end, self.columns.host(1, thread), correlation, external)

    def operator(self, name: str, start: int, end: int, *, thread: int = THREAD, external: int = NONE) -> "Timeline":
        """
        An operator.
        """
        return self.host(Kind.CPU_OP, name, start, end, thread=thread, external=external)

    def mark(self, name: str, number: int, start: int, end: int, *, thread: int = THREAD) -> "Timeline":
        """
        A mirrored span, whose id is ``number``.
        """
        return self.host(Kind.ANNOTATION, f"{name} #{number:016x}", start, end, thread=thread)

    def launch(
        self, correlation: int, start: int, end: int, *, name: str = "cudaLaunchKernel", thread: int = THREAD
    ) -> "Timeline":
        """
        A call that launches a kernel.
        """
        return self.host(Kind.RUNTIME, name, start, end, thread=thread, correlation=correlation)

    def work(
        self,
        kind: Kind,
        name: str,
        start: int,
        end: int,
        *,
        device: int = 0,
        stream: int = 7,
        correlation: int = NONE,
        external: int = NONE,
        collective: Collective | None = None,
    ) -> "Timeline":
        """
        Work of a device.
        """
        if collective is not None:
            self.columns.collective(self.columns.length, collective)
        return self._add(kind, name, start, end, self.columns.device(device, stream), correlation, external)

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        *,
        device: int = 0,
        stream: int = 7,
        correlation: int = NONE,
        external: int = NONE,
    ) -> "Timeline":
        """
        A kernel.
        """
        return self.work(
            Kind.KERNEL, name, start, end, device=device, stream=stream, correlation=correlation, external=external
        )

    def trace(self, *flags: Flag) -> Trace:
        """
        The whole.
        """
        return self.columns.trace(Header(path=Path("made.json"), format="kineto", flags=flags))

    def _add(
        self, kind: Kind, name: str, start: int, end: int, track: int, correlation: int, external: int
    ) -> "Timeline":
        self.columns.add(
            start_ns=[start],
            duration_ns=[end - start],
            name=[self.columns.name(name)],
            kind=[kind],
            track=[track],
            correlation=[correlation],
            external_id=[external],
        )
        return self


def ids(*numbers: int) -> Sequence[str]:
    """
    Ids of spans.
    """
    return [f"{number:016x}" for number in numbers]
