"""
What a node's sidecar tells the sidecar upstream of it, and what that answers: JSON over HTTP.

Owns the form, its bounds and what is believed of it: a report speaks for its own node alone, and names no path that
leads anywhere. Sending is ``reporter``'s, keeping ``nodes``'.
"""

import re
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, get_args, get_origin, get_type_hints

import orjson

from stepscope.errors import StepscopeError
from stepscope.names import State
from stepscope.settings import RUN_PATTERN
from stepscope_sidecar.clock import Estimate
from stepscope_sidecar.places import plain
from stepscope_sidecar.rows import MissingRow, Value, WindowRow

PATH = "/v1/stepscope/report"
"""Beside OTLP's /v1/traces, on the same listener."""

MAX_BYTES = 2 * 1024**2
"""Of one report; a hundred windows take about 150 kB."""

MAX_ROWS = 100
"""Windows in one report; more go into the next, which follows at once."""

MAX_MISSING = 500
"""Missing recordings in one report, likewise; each takes about 80 bytes."""

MAX_TEXT = 4096
"""Characters of one field of a window; the longest, a failure's detail, has 500."""

MAX_STEPS = 64 * 1024
"""Characters of an order's steps, as many as an order to the upstream itself may have."""

MAX_NUMBER = 2**63 - 1

MAX_SHARED = 10_000
"""Steps after its first that one window covers: hours in one recording, of steps of a second."""

MAX_INSTANCE = 64
"""Characters of the name of a sidecar that tell it from others; ours have sixteen."""

MAX_PHASES = 16
"""Phases of a window's stall; there are five."""

KEPT = {"last_step": int, "stored": str, "stored_url": str, "stored_reason": str}
"""Of what else a node keeps of a window, that which is shown upstream; the rest is the node's own."""

NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""A host name, or what STEPSCOPE_NODE may be. It becomes part of an address."""

DIGEST = re.compile(r"|[0-9a-f]{64}")
STATES = frozenset(state.value for state in State) - {State.LOST.value}


DOUBLE = 423
"""The answer to a sidecar whose node's name another one reports under, too."""


class ReportError(StepscopeError):
    """
    A report, or the answer to one, is not what it should be.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """
    Record ``steps`` from now on, or with ``stopped`` nothing. A greater ``number`` is a later order, whoever gave it.
    """

    number: int
    steps: str = ""
    stopped: bool = False

    def __str__(self) -> str:
        """
        For people.
        """
        return "stop" if self.stopped else f"steps {self.steps or '(none)'}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """
    ``windows`` are those that have changed since the last report that was taken.
    """

    node: str
    run: str
    attempt: str
    http: str = ""
    """Where the node's sidecar can be asked for artifacts; "" where it cannot."""
    clock: Estimate | None = None
    ending: bool = False
    """Whether this is the last one, because the sidecar ends in order."""
    obeys: int = 0
    """The number of the last order from upstream that the node has carried out; 0 if there was none."""
    instance: str = ""
    """A name that the node's sidecar has alone, and none before or after it; "" of a former release."""
    sequence: int = 0
    """Greater in each report of it, so that one that comes late is known."""
    windows: tuple[WindowRow, ...] = ()
    missing: tuple[MissingRow, ...] = ()
    """Recordings that the node's own processes were expected to make and did not, likewise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """
    The report is kept. ``keeper`` names the store; a node that finds another one tells everything again.
    """

    keeper: str
    unix_ns: int
    held_ns: int
    order: Order | None = None
    """What the node is to do now."""
    known: bool = True
    """Whether the node was known before this report; one that had to make room meanwhile tells everything again."""
    refused: str = ""
    """Why some windows are not kept; "" where all are."""


def encode(report: Report) -> bytes:
    """
    ``report`` as it is sent.
    """
    return orjson.dumps(report, option=orjson.OPT_NON_STR_KEYS)


def decode(body: bytes) -> Report:
    """
    The report in ``body``.

    Raises:
        ReportError: it is none, or tells of what is not its own.
    """
    found = _object(body)
    node, run, attempt = (_text(found, name) for name in ("node", "run", "attempt"))
    if not (NODE.fullmatch(node) and RUN_PATTERN.fullmatch(run) and RUN_PATTERN.fullmatch(attempt)):
        raise ReportError(f"node {node[:40]!r} of {run[:40]!r}, {attempt[:40]!r}: these are no names")
    listed = found.get("windows")
    if not isinstance(listed, list) or len(listed) > MAX_ROWS:
        raise ReportError(f"windows: a list of at most {MAX_ROWS} is expected")
    rows = tuple(map(_row, listed))
    for row in rows:
        if (row.node, row.run, row.attempt) != (node, run, attempt):
            raise ReportError(f"window {row.window[:80]!r} is not of this node and attempt")
    return Report(
        node=node,
        run=run,
        attempt=attempt,
        http=_text(found, "http"),
        clock=_clock(found.get("clock")),
        ending=found.get("ending") is True,
        obeys=_whole(found.get("obeys", 0)),
        instance=_text(found, "instance")[:MAX_INSTANCE],
        sequence=_whole(found.get("sequence", 0)),
        windows=rows,
        missing=_missing(found.get("missing")),
    )


def encode_reply(reply: Reply) -> bytes:
    """
    ``reply`` as it is sent.
    """
    return orjson.dumps(reply)


def decode_reply(body: bytes) -> Reply:
    """
    The reply in ``body``.

    Raises:
        ReportError: it is none.
    """
    found = _object(body)
    return Reply(
        keeper=_text(found, "keeper"),
        unix_ns=_whole(found.get("unix_ns")),
        held_ns=_whole(found.get("held_ns")),
        order=_order(found.get("order")),
        known=found.get("known") is not False,
        refused=_on_a_line(_text(found, "refused")),
    )


def _row(found: object) -> WindowRow:
    if not isinstance(found, dict):
        raise ReportError("a window is an object")
    given: dict[str, Any] = {}
    for name, hint in HINTS.items():
        if name not in found:
            if name in REQUIRED:
                raise ReportError(f"a window lacks {name}")
            continue
        if not _fits(found[name], hint):
            raise ReportError(f"{name} of a window is not {hint}")
        given[name] = found[name]
    row = WindowRow(**given)
    row = replace(row, detail=_on_a_line(row.detail), other=_other(row.other))
    for name in HINTS:
        # It is shown on pages and terminals, and names files.
        if isinstance(text := getattr(row, name), str) and not text.isprintable():
            raise ReportError(f"window {row.window[:80]!r}: {name}={text[:80]!r} is not to be printed")
    if row.state not in STATES or not DIGEST.fullmatch(row.sha256) or not _are_stalls(row.stall_seconds):
        raise ReportError(f"window {row.window[:80]!r}: state, stall_seconds or sha256 is not one")
    if min(row.bytes, row.step, row.rank) < 0:
        raise ReportError(f"window {row.window[:80]!r}: bytes, step or rank is below 0")
    if row.last_step - row.step > MAX_SHARED:
        raise ReportError(
            f"window {row.window[:80]!r}: last_step={row.last_step} is over {MAX_SHARED} steps after step"
        )
    for path in (row.artifact, row.folder):
        if path and not plain(path):
            raise ReportError(f"window {row.window[:80]!r}: {path[:80]!r} is no path below a folder")
    return row


def _missing(found: object) -> tuple[MissingRow, ...]:
    """
    Those in ``found`` that are what they should be: for one that is not, no window is refused.
    """
    told = []
    for item in found[:MAX_MISSING] if isinstance(found, list) else ():
        given: dict[str, Any] = {name: item.get(name) for name in MISSING_HINTS} if isinstance(item, dict) else {}
        if not given or not all(_fits(given[name], hint) for name, hint in MISSING_HINTS.items()):
            continue
        row = MissingRow(**given)
        if min(row.step, row.rank) >= 0 and row.role.isprintable() and row.reason.isprintable():
            told.append(row)
    return tuple(told)


def _fits(value: object, hint: Any) -> bool:
    if get_origin(hint) is dict:
        return isinstance(value, dict)
    kinds = get_args(hint) or (hint,)
    if isinstance(value, bool) or value is None:
        return type(value) in kinds
    if isinstance(value, str):
        return str in kinds and len(value) <= MAX_TEXT
    return isinstance(value, (int, float)) and bool({int, float} & set(kinds)) and _in_range(value, kinds)


def _in_range(value: int | float, kinds: tuple[Any, ...]) -> bool:
    return abs(value) <= MAX_NUMBER and (float in kinds or isinstance(value, int))


def _are_stalls(found: dict[str, Any]) -> bool:
    return len(found) <= MAX_PHASES and all(
        phase.isprintable() and len(phase) <= MAX_TEXT and _fits(value, float) and value is not None and value >= 0
        for phase, value in found.items()
    )


def _other(found: dict[str, Any]) -> dict[str, Value]:
    given = {name: found[name] for name, kind in KEPT.items() if type(found.get(name)) is kind}
    for name, value in given.items():
        if not _fits(value, KEPT[name]) or not str(value).isprintable():
            raise ReportError(f"{name} of a window is not what it should be")
    return given


def _on_a_line(text: str) -> str:
    """
    ``text`` without characters that a terminal would obey.
    """
    return "".join(character if character.isprintable() else " " for character in text)


def _clock(found: object) -> Estimate | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ReportError("clock: an object is expected")
    return Estimate(offset_ns=_whole(found.get("offset_ns")), error_ns=abs(_whole(found.get("error_ns"))))


def _order(found: object) -> Order | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ReportError("order: an object is expected")
    return Order(
        number=_whole(found.get("number")),
        steps=_text(found, "steps", limit=MAX_STEPS),
        stopped=found.get("stopped") is True,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ReportError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ReportError("not a JSON object")
    return found


def _text(found: dict[str, Any], name: str, *, limit: int = MAX_TEXT) -> str:
    value = found.get(name, "")
    if not isinstance(value, str) or len(value) > limit:
        raise ReportError(f"{name}: text is expected")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_NUMBER:
        raise ReportError("a whole number is expected")
    return value


HINTS = get_type_hints(WindowRow)
MISSING_HINTS = get_type_hints(MissingRow)
REQUIRED = frozenset(
    item.name for item in fields(WindowRow) if item.default is MISSING and item.default_factory is MISSING
)
