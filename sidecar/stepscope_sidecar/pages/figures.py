"""
What a recording holds, as parts of a page: from the digest that a child process has made of it.

Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stepscope_sidecar.labels import duration
from stepscope_sidecar.pages.html import Content, facts, link, table, tag

NUMBERS = frozenset({"time", "calls", "share", "device", "operators", "spans", "then", "now"})

BEING_READ = "The recording is being read …"


def recordings(digest: Mapping[str, Any] | None) -> list[Content]:
    """
    The section of a window; ``digest`` is None while its recording is being read.
    """
    if digest is None:
        return [tag("p", BEING_READ, kind="dim")]
    if "error" in digest:
        return [tag("p", f"It cannot be shown: {digest['error']}", kind="note")]
    made: list[Content] = [tag("p", digest["reason"], kind="note")] if digest["reason"] else []
    for one in digest["recordings"]:
        if len(digest["recordings"]) > 1:
            made.append(tag("h3", one["file"]))
        made += _recording(one)
    return made + _difference(digest["difference"])


def spans(digest: Mapping[str, Any] | None) -> list[Content]:
    """
    Of a window's digest its spans alone, with the time that devices and operators took in them.
    """
    if digest is None:
        return [tag("p", BEING_READ, kind="dim")]
    if "error" in digest:
        return [tag("p", f"It cannot be shown: {digest['error']}", kind="dim")]
    found = [_spans(one) for one in digest["recordings"]]
    return [one for one in found if one is not None] or [tag("p", digest["reason"] or "It holds no spans.", kind="dim")]


def _recording(told: Mapping[str, Any]) -> list[Content]:
    wall, device = told["wall_ns"], told["device"]
    era = f" ({told['era']})" if told["era"] else ""
    lines: list[tuple[str, Content]] = [
        ("format", f"{told['format']}{era}"),
        ("wall", f"{duration(wall)} ({told['wall_by']}), {told['events']:,} events"),
    ]
    lines += [("flag", tag("span", f"{flag['fault']}: {flag['reason']}", kind="bad")) for flag in told["flags"]]
    if device:
        for part in ("busy", "idle", "compute", "communication", "memory"):
            lines.append((f"device, {part}", _part(device[f"{part}_ns"], device["wall_ns"])))
        lines.append(("bound by", f"{told['bound']['by']}: {'; '.join(told['bound']['evidence'])}"))
    lines += [(part, tag("span", why, kind="dim")) for part, why in told["absent"].items()]
    made: list[Content] = [facts(lines)]
    for part, whole in (("kernels", "total_ns"), ("operators", "own_ns")):
        made += _names(part, told[part], whole=told[part][whole])
    if told["collectives"]:
        rows = [
            (one["name"], duration(one["total_ns"]), one["count"], one["group"] or "") for one in told["collectives"]
        ]
        made += [tag("h3", "Collectives"), table(("name", "time", "calls", "group"), rows, numbers=NUMBERS, slim=True)]
    found = _spans(told)
    return made + ([tag("h3", "Spans"), found] if found is not None else [])


def _names(title: str, told: Mapping[str, Any], *, whole: int) -> list[Content]:
    """
    The names that come first, each with its share of the ``whole``, which is that of all names.
    """
    rows: Sequence[Mapping[str, Any]] = told["top"]
    if not rows:
        return []
    cells = [
        (row["name"], duration(row["own_ns"]), f"{row['own_ns'] / (whole or 1):.1%}", row["count"]) for row in rows
    ]
    more = told["names"] - len(rows)
    heading = title.capitalize() + (f", the first {len(rows)} of {told['names']}" if more > 0 else "")
    return [tag("h3", heading), table(("name", "time", "share", "calls"), cells, numbers=NUMBERS, slim=True)]


def _spans(told: Mapping[str, Any]) -> Content:
    rows: Iterable[Mapping[str, Any]] = told["spans"]
    if not rows:
        return None
    device, operators = told["device"] is not None, bool(told["operators"]["top"])
    cells = [
        (
            row["name"],
            row["spans"],
            duration(row["duration_ns"]),
            duration(row["device_ns"]) if device else "none recorded",
            duration(row["operator_ns"]) if operators else "none recorded",
        )
        for row in rows
    ]
    return table(("span", "spans", "time", "device", "operators"), cells, numbers=NUMBERS)


def _difference(told: Mapping[str, Any]) -> list[Content]:
    if not told["window"]:
        return [tag("h3", "Difference"), tag("p", f"Unknown: {told['reason']}.", kind="dim")]
    before = link(f"../windows/{told['window']}", f"step {told['step']}")
    made: list[Content] = [tag("h3", "Difference to the recording before"), tag("p", before)]
    if told["reason"]:
        made.append(tag("p", told["reason"], kind="dim"))
    for number, one in enumerate(told["recordings"], 1):
        if len(told["recordings"]) > 1:
            made.append(tag("h3", f"Difference of recording {number}"))
        made += [tag("p", measure, kind="dim") for measure in one["measures"]]
        made += _changes(one)
    return made


def _changes(told: Mapping[str, Any]) -> list[Content]:
    if not told["changes"]:
        return []
    cells = [
        (
            row["name"],
            row["side"],
            row["what"],
            duration(row["before_ns"]) if row["count_before"] else None,
            duration(row["after_ns"]) if row["count_after"] else None,
            f"{row['count_before']} → {row['count_after']}",
        )
        for row in told["changes"]
    ]
    more = told["names"] - len(cells)
    rest = [tag("p", f"and {more} more; stepscope show --json has all", kind="dim")] if more > 0 else []
    return [table(("name", "kind", "what", "then", "now", "calls"), cells, numbers=NUMBERS), *rest]


def _part(part: int, whole: int) -> str:
    return f"{duration(part)} ({part / whole:.1%})" if whole else duration(part)
