"""
Makes the final file of a speedscope recording, as py-spy writes it: sampled stacks of each thread.

Owns the check of its format, what it is told about itself, and whether it holds the whole of its window. Its times are
seconds since the tool began, which only the close record can place in real time.
"""

import gzip
import math
from pathlib import Path
from typing import Any

import orjson

from stepscope.names import Incomplete
from stepscope.wire import Closed
from stepscope_sidecar.artifacts import Artifact, InvalidArtifact, Verdict, tree
from stepscope_sidecar.artifacts.parsing import paired
from stepscope_sidecar.artifacts.pieces import open_raw
from stepscope_sidecar.jobs import Job

PACKED = ".gz"
"""What a final file's name ends with; speedscope opens it as it is."""

SCHEMA = "speedscope"
"""What the address of the format's schema holds."""

MAX_BYTES = 128 << 20
"""Bytes that are parsed, ten times those as objects: two hours of a hundred threads take less."""

UNIT_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
"""Units of time that the format knows."""

EDGE = 0.02
"""Seconds at the beginning that do not count as a gap: two of a hundred samples a second."""

SLACK = 0.05
"""Share of the samples whose lack does not count: a tool that gives way to the program comes too late for some."""


def make(job: Job) -> Artifact:
    """
    The final, packed file. Where a crash has left both the raw file and the final one, the raw one counts.
    """
    raw = tree.raw(job.folder, job.closed.artifact)
    final = raw.with_name(raw.name + PACKED)
    source = raw if raw.is_file() or not final.is_file() else final
    found = _load(source)
    samples, seconds = _measure(found)
    if source is raw:
        _write(final, found, job.closed)
        raw.unlink()
    size, sha256 = tree.measure(final)
    began = job.closed.opened_unix_ns
    return Artifact(
        path=final,
        bytes=size,
        sha256=sha256,
        verdict=judge(job.closed, seconds=seconds),
        events=samples,
        first_unix_ns=began,
        last_unix_ns=began + round(seconds * 1e9),
    )


def judge(closed: Closed, *, seconds: float) -> Verdict:
    """
    Whether ``seconds`` of samples are those of the whole window, from its step's beginning to its end.
    """
    since, until = (_time(closed, key, other) for key, other in (("since", "opened"), ("until", "closed")))
    window = (until - since) / 1e9
    if window <= 0:
        return Verdict(complete=None, detail="the window has no length")
    head = max(0.0, (closed.opened_unix_ns - since) / 1e9)
    lacking = max(0.0, window - head - seconds)
    found: list[tuple[float, Incomplete, str]] = []
    if head > EDGE:
        found.append((head, Incomplete.GAP_HEAD, f"the tool recorded {head:.3f} s after the step began"))
    if lacking > SLACK * window:
        # Who wrote the record knows until when the tool was on: the sidecar that stopped it, or only the process.
        stopped = "stepscope.until_unix_ns" in closed.metadata
        reason = Incomplete.SAMPLES_MISSING if stopped else Incomplete.GAP_TAIL
        found.append((lacking, reason, f"{lacking:.3f} s of samples are missing"))
    if not found:
        return Verdict(complete=True)
    gap, reason, _ = max(found)
    detail = "; ".join(text for _, _, text in found)
    return Verdict(complete=False, reason=reason, share=min(1.0, gap / window), detail=detail)


def _time(closed: Closed, key: str, other: str) -> int:
    told = closed.metadata.get(f"stepscope.{key}_unix_ns", "")
    return int(told) if told.isdecimal() else int(getattr(closed, f"{other}_unix_ns"))


def _load(path: Path) -> dict[str, Any]:
    with open_raw(path) as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise InvalidArtifact(f"more than {MAX_BYTES} bytes of samples")
    try:
        found = orjson.loads(paired(text))
    except orjson.JSONDecodeError as error:
        raise InvalidArtifact(f"not JSON: {error}") from error
    if not isinstance(found, dict) or SCHEMA not in str(found.get("$schema", "")):
        raise InvalidArtifact("not a speedscope file: its $schema says otherwise")
    return found


def _measure(found: dict[str, Any]) -> tuple[int, float]:
    """
    How many samples there are, and the seconds that those of the longest thread stand for.
    """
    samples, seconds = 0, 0.0
    try:
        frames = len(found["shared"]["frames"])
        for profile in found["profiles"]:
            if profile["type"] != "sampled" or len(profile["samples"]) != len(profile["weights"]):
                raise InvalidArtifact(f"profile {profile.get('name', '')!r} holds no samples with weights")
            if any(not 0 <= frame < frames for stack in profile["samples"] for frame in stack):
                raise InvalidArtifact(f"profile {profile.get('name', '')!r} names a frame that is not there")
            samples += len(profile["samples"])
            seconds = max(seconds, math.fsum(profile["weights"]) * UNIT_SECONDS[profile["unit"]])
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidArtifact(f"not a speedscope file: {type(error).__name__} {error}") from error
    if not samples:
        raise InvalidArtifact("no samples: the process ran no Python while it was recorded")
    return samples, seconds


def _write(final: Path, found: dict[str, Any], closed: Closed) -> None:
    about = closed.metadata
    if about.get("stepscope.step"):
        place = f"{about.get('stepscope.role', '')}-{about.get('stepscope.rank', '')}".strip("-")
        found["name"] = " ".join(filter(None, [f"step {about['stepscope.step']}", place, closed.window]))
    # Its times count from when the tool was on, which only the close record knows.
    found["stepscope"] = {"stepscope.opened_unix_ns": str(closed.opened_unix_ns), **about}
    partial = final.with_name(f"{final.name}.partial")
    # No time and no name in the header: the same recording gives the same bytes.
    partial.write_bytes(gzip.compress(orjson.dumps(found), mtime=0))
    partial.replace(final)
