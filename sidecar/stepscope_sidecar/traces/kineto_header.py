"""
What a Kineto file is: its era, its clock, its rank, and what is wrong with it.

Owns what is read from around the events. Only what is named here leaves the file's metadata, which may hold anything.
"""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from stepscope_sidecar.artifacts.survey import stopped_early
from stepscope_sidecar.traces import ranks
from stepscope_sidecar.traces.chrome import number
from stepscope_sidecar.traces.columns import Columns
from stepscope_sidecar.traces.exact import MAX_NS
from stepscope_sidecar.traces.kineto import KINDS, Kineto
from stepscope_sidecar.traces.trace import Clock, Fault, Flag, Header

ABSOLUTE_NS = 10**17
"""Times beyond this are since 1970 (it is of 1973); relative ones stay under 7.9e15."""

OURS = "stepscope."
"""How the keys begin that stepscope writes."""

RELATIVE = "torch 2.4 or later: times since baseTimeNanoseconds"
ABSOLUTE = "torch before 2.4: times since the epoch"
OLD = "torch before 2022-05: times since the epoch, categories with capitals"
STRIPPED = "torch of 2024-04 to 2024-05, or its baseTimeNanoseconds was removed"
CAPITALS = frozenset(category for category in KINDS if category[0].isupper())

MAX_NAMED = 10
"""Categories that are named in one sentence."""

CUT_BASE = "times are relative, and baseTimeNanoseconds was in the part that is cut off"
NO_BASE = "times are relative and the file has no baseTimeNanoseconds"

WORDS = {
    Fault.NOT_EVENTS: "{} elements of traceEvents are no events",
    Fault.NUMBERS_AS_TEXT: "{} events have their times as text",
    Fault.LARGE_NUMBERS: "{} ids have more than 63 bits and are left out",
    Fault.LOST_NAMES: "{} names are lost: torch writes 'unknown' for what is not plain ASCII",
}


GUESSED = {
    "mtia_ccp_events": "mtia_ccp_events are on a device; what kind of work they are is not known",
    "mtia_runtime": "mtia_runtime are launches, tied to device events by flows that are not read",
    "cuda_profiler_range": "cuda_profiler_range are ranges on a device, not work",
}
"""Rules for categories that no source explains."""

NOT_TOLD = frozenset({None, "", "cpu_instant_event"})


def header(
    reader: Kineto, keys: Mapping[str, object], path: Path, *, first_ns: int | None, flags: Sequence[Flag] = ()
) -> Header:
    """
    The header, once all events are in.

    Args:
        reader: has the events.
        keys: the outermost ones of the file.
        path: the file.
        first_ns: the first start, on the file's own clock.
        flags: what was wrong with it before its events were looked at.
    """
    told, guesses = number(keys.get("baseTimeNanoseconds")), _guesses(reader.categories)
    base, reason, era = told if told is not None and 0 <= told <= MAX_NS else 0, "", RELATIVE
    if first_ns is not None and first_ns > ABSOLUTE_NS:
        if base:
            guesses.append("baseTimeNanoseconds is not added: the times are since the epoch without it")
        base, era = 0, ABSOLUTE
    elif first_ns is not None and not base:
        cut_off = any(flag.fault == Fault.TRUNCATED for flag in flags)
        reason, era = (CUT_BASE, RELATIVE) if cut_off else (NO_BASE, STRIPPED)
    if CAPITALS & reader.categories:
        era = OLD
    rank, rank_from, world = ranks.rank(keys, path)
    session = reader.session_ns
    return Header(
        path=path,
        format="kineto",
        era=era,
        clock=Clock.RELATIVE if reason else Clock.EPOCH,
        clock_reason=reason,
        base_ns=base,
        rank=rank,
        rank_from=rank_from,
        world_size=world,
        devices=_devices(keys),
        session_ns=(min(session) + base, max(session) + base) if session else None,
        metadata={key: value for key, value in keys.items() if key.startswith(OURS) and isinstance(value, str)},
        flags=(*flags, *_flags(reader, keys, reason)),
        guesses=tuple(guesses),
        unplaced=reader.columns.lacking(),
    )


def _flags(reader: Kineto, keys: Mapping[str, object], reason: str) -> list[Flag]:
    found = [Flag(fault=fault, reason=WORDS[fault].format(count)) for fault, count in reader.faults.items() if count]
    if reason:
        found.append(Flag(fault=Fault.NO_EPOCH, reason=reason))
    found += lacking(reader.columns)
    if stopped_early(dict(keys)):
        found.append(Flag(fault=Fault.ENDED_EARLY, reason="Kineto notes that it stopped early: its buffers were full"))
    return found


def lacking(columns: Columns) -> list[Flag]:
    """
    A flag for events that are not in the table, or for having none.
    """
    if unplaced := columns.lacking():
        what = ", ".join(f"{one.count} of kind {one.kind.name.lower()}" for one in unplaced)
        return [Flag(fault=Fault.UNPLACED_EVENTS, reason=f"without a usable start or length: {what}")]
    if not columns.length:
        return [Flag(fault=Fault.NO_EVENTS, reason="the list of events holds none with a start and a length")]
    return []


def _devices(keys: Mapping[str, object]) -> tuple[str, ...]:
    told = keys.get("deviceProperties") or keys.get("computeProperties")
    found = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    return tuple(str(one.get("name", "")) for one in found)


def _guesses(categories: Set[str | None]) -> list[str]:
    found = [GUESSED[category] for category in sorted(GUESSED) if category in categories]
    strange = sorted(str(one) for one in categories if one not in KINDS and one not in NOT_TOLD)
    if strange:
        found.append(f"categories that are not known count as other work on the host: {', '.join(strange[:MAX_NAMED])}")
    return found
