"""
What profilers leave behind: one handler per format, which checks a raw recording and makes the final artifact of it.

Owns the seam between the finaliser and the formats, and which tool leaves which format. A handler is a function of a
job; it is imported when the first recording of its kind comes, in the finalising child.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from stepscope_sidecar.jobs import Job

HANDLERS = {
    "torch": "stepscope_sidecar.artifacts.kineto:make",
    "vllm": "stepscope_sidecar.artifacts.engine:make",
    "http": "stepscope_sidecar.artifacts.engine:make",
    "torch_npu": "stepscope_sidecar.artifacts.ascend:make",
    "msprof": "stepscope_sidecar.artifacts.ascend:make",
    "py-spy": "stepscope_sidecar.artifacts.speedscope:make",
}
"""Tool, and where the handler of its recordings is; what is not here is kept as it is, by ``other``."""

OTHER = "stepscope_sidecar.artifacts.other:make"


class InvalidArtifact(Exception):  # noqa: N818 - named for what it says about the artifact
    """
    The recording is not what its profiler should have written; the message says where and how.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """
    Whether a recording holds the whole of its window; ``complete`` is None where nobody can know.

    ``share`` is the missing part of what ``reason`` speaks of, from 0 to 1; ``detail`` names all that is missing.
    """

    complete: bool | None
    reason: str = ""
    share: float | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """
    A final artifact: a file or a folder, its bytes and its hash (of a folder: see ``tree``), and what is known of it.

    Times are unix-epoch ns, 0 where the recording does not say.
    """

    path: Path
    bytes: int
    sha256: str
    verdict: Verdict
    events: int = 0
    first_unix_ns: int = 0
    last_unix_ns: int = 0


class Handler(Protocol):
    """
    Makes the final artifact of one kind of recording.
    """

    def __call__(self, job: Job) -> Artifact:
        """
        Make it in ``job.folder``, of what the close record names there, and remove what it was made of.

        Doing it again, also after a crash at any point, gives the same artifact and the same answer. Memory is bounded
        whatever the size of the recording. What the agent knew to be missing (``job.closed.incomplete``) is not
        repeated in the verdict.

        Raises:
            FileNotFoundError: there is neither a raw recording nor a final one, or a folder without a file.
            InvalidArtifact: what there is is broken; it is left as it is.
        """


def handler(tool: str) -> Handler:
    """
    The handler of what ``tool`` leaves behind.
    """
    module, _, function = HANDLERS.get(tool, OTHER).partition(":")
    return cast("Handler", getattr(importlib.import_module(module), function))
