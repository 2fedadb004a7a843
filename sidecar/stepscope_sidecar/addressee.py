"""
Asking the sidecar of one run and of no other: the note of where it listens outlives it, and where the address is fixed,
the next run's sidecar answers there.

Owns what a request says of whom it is for, and what is made of an answer. Refusing what is for another is ``gate``'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from stepscope_sidecar import lifecycle, nodefolder, orphans

HEADER = "stepscope-run"
"""Names the run whose sidecar a request is for, so that the one that gets it can refuse: there is no moment between."""

DEADLINE = 2.0
"""Seconds for a sidecar to answer; one on this machine needs some milliseconds."""

PATIENCE = 10.0
"""The same for one that is known to run: on a crowded machine it may stand still for seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """
    What the sidecar of a run says.
    """

    url: str = ""
    """Where it listens, or did."""
    status: Mapping[str, Any] | None = None
    """None: no sidecar of this run has told it."""
    guarded: bool = False
    """It is there, and demands its token."""


def run_name(folder: Path) -> str:
    """
    What the run in ``folder`` is called in STEPSCOPE_DIR, wherever that is mounted.
    """
    return folder.relative_to(nodefolder.directory(folder)).as_posix()


def mark(run: str) -> str:
    """
    ``run`` as the header has it.
    """
    return quote(run)


def headers(folder: Path, shown: Mapping[str, str]) -> dict[str, str]:
    """
    What a request to the sidecar of the run in ``folder`` carries, beside what it has ``shown``.
    """
    return {**shown, HEADER: mark(run_name(folder))}


def url(folder: Path) -> str:
    """
    Where the sidecar of the run in ``folder`` listens, or did; "" if there was none.
    """
    return str(lifecycle.announced(folder).get("http") or "")


def ask(folder: Path, *, shown: Mapping[str, str], deadline: float | None = None) -> Answer:
    """
    The status that the sidecar of the run in ``folder`` tells whoever has ``shown`` that, within ``deadline`` seconds.
    """
    where = url(folder)
    if not where:
        return Answer()
    if deadline is None:
        deadline = PATIENCE if orphans.attended(folder) else DEADLINE
    try:
        marked = headers(folder, shown)
        answer = httpx.get(f"{where}/api/status", timeout=deadline, trust_env=False, headers=marked)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            return Answer(url=where, guarded=orphans.attended(folder))
        found = answer.raise_for_status().json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return Answer(url=where)
    return Answer(url=where, status=found if _is_of(found, folder) else None)


def _is_of(found: object, folder: Path) -> bool:
    # A sidecar of an older release tells its status to everybody, and so does whatever else listens there.
    if not isinstance(found, dict):
        return False
    return f"{found.get('run')}-{found.get('attempt')}" == run_name(folder).partition("/")[0]
