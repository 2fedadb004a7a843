"""
What the finaliser is asked to do for a closed window, and what it answers; and how both cross to its child process.
"""

from dataclasses import dataclass
from pathlib import Path

import orjson

from stepscope import wire
from stepscope.errors import WireError


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """
    A closed window: its absolute folder, its close record, its process's pid and, where known, the role's size.

    ``tool`` says what made the recording, and so how to read it.
    """

    folder: Path
    closed: wire.Closed
    pid: int
    tool: str = "torch"
    world_size: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """
    What became of a job. With ``reason`` it failed and what there was is kept; else ``artifact`` (absolute) is final.

    ``complete`` is None where the recording does not say. ``cpu_seconds`` and ``peak_memory`` (bytes, resident) are the
    child's.
    """

    window: str
    artifact: str = ""
    bytes: int = 0
    sha256: str = ""
    complete: bool | None = None
    incomplete_reason: str = ""
    incomplete_share: float | None = None
    reason: str = ""
    detail: str = ""
    events: int = 0
    first_unix_ns: int = 0
    last_unix_ns: int = 0
    cpu_seconds: float = 0.0
    peak_memory: int = 0

    @property
    def ready(self) -> bool:
        """
        Whether the final artifact is in its place.
        """
        return not self.reason


def encode(job: Job) -> bytes:
    """
    ``job`` as the child reads it.
    """
    told = {"folder": str(job.folder), "closed": wire.encode(job.closed).decode(), "pid": job.pid, "tool": job.tool}
    return orjson.dumps({**told, "world_size": job.world_size})


def decode(data: bytes) -> Job:
    """
    The job in ``data``.

    Raises:
        WireError: it is none.
    """
    try:
        found = orjson.loads(data)
        return Job(
            folder=Path(found["folder"]),
            closed=wire.load_closed(found["closed"].encode()),
            pid=int(found["pid"]),
            tool=str(found["tool"]),
            world_size=found["world_size"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WireError(f"not a job: {error}") from error
