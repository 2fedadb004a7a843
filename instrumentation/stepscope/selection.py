"""
Which steps and which ranks are to be recorded: the grammar, and the questions asked of it.

Pure. A selection travels as its text; both ends parse it alike.
"""

import re
from dataclasses import dataclass

from stepscope.errors import SelectionError

GRAMMAR = "N, N-M (inclusive), every:K, every:K@S, vN (the step while version N is in force); comma-separated"
"""Shown in every error about a step selection."""

RANK_GRAMMAR = "0, 0-3, all, or by role: trainer=0-3,rollouter=0; a role's ranks may be joined by +: trainer=0+2"
"""Shown in every error about a rank selection."""

SHOWN = 100
"""Characters of what cannot be read that an error repeats."""

_N = r"\d{1,18}"
"""Fits into 64 bits. Python itself refuses numbers of some thousand digits, with an error of its own."""

_NUMBER = re.compile(rf"-?{_N}")
_RANGE = re.compile(rf"({_N})\s*-\s*({_N})")
_EVERY = re.compile(rf"every:({_N})(?:@({_N}))?")
_VERSION = re.compile(rf"v({_N})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """
    A set of steps. Steps count from 1; step s runs while version s-1 is in force.
    """

    text: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    every: tuple[tuple[int, int], ...] = ()
    """Pairs (first step, stride)."""

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """
        The selection that ``text`` names; an empty text selects nothing.

        Raises:
            SelectionError: a part of it does not follow the grammar.
        """
        ranges: list[tuple[int, int]] = []
        every: list[tuple[int, int]] = []
        parts = [part.strip() for part in text.split(",")]
        if parts == [""]:
            return cls()
        for part in parts:
            if _NUMBER.fullmatch(part):
                ranges.append((int(part), int(part)))
            elif match := _RANGE.fullmatch(part):
                first, last = int(match[1]), int(match[2])
                if first > last:
                    raise SelectionError(f"steps {part!r}: {first} is after {last}; write {last}-{first}")
                ranges.append((first, last))
            elif match := _EVERY.fullmatch(part):
                stride = int(match[1])
                if stride < 1:
                    raise SelectionError(f"steps {part!r}: the stride must be at least 1; write every:1 for every step")
                every.append((int(match[2]) if match[2] else stride, stride))
            elif match := _VERSION.fullmatch(part):
                ranges.append((int(match[1]) + 1, int(match[1]) + 1))
            elif not part:
                raise SelectionError(f"steps {text!r:.{SHOWN}}: an empty part between commas; the grammar is {GRAMMAR}")
            else:
                raise SelectionError(f"steps {part!r:.{SHOWN}} cannot be read; the grammar is {GRAMMAR}")
        return cls(text=",".join(parts), ranges=tuple(ranges), every=tuple(every))

    def __contains__(self, step: int) -> bool:
        """
        Whether ``step`` is selected. Steps below 1 never are: they cannot occur.
        """
        if step < 1:
            return False
        return any(first <= step <= last for first, last in self.ranges) or any(
            step >= first and (step - first) % stride == 0 for first, stride in self.every
        )

    def __bool__(self) -> bool:
        """
        Whether any step can be selected at all.
        """
        return bool(self.ranges or self.every)

    def unreachable(self, *, resumed_from: int = 0, total_steps: int | None = None) -> list[str]:
        """
        The parts that can never occur in a run resumed at version ``resumed_from``, as a person would write them.
        """
        found = []
        for first, last in self.ranges:
            low = max(first, resumed_from + 1)
            high = last if total_steps is None else min(last, total_steps)
            if low > high:
                found.append(str(first) if first == last else f"{first}-{last}")
            else:
                if first < low:
                    found.append(str(first) if first == low - 1 else f"{first}-{low - 1}")
                if high < last:
                    found.append(str(last) if last == high + 1 else f"{high + 1}-{last}")
        for first, stride in self.every:
            if total_steps is not None and first > total_steps:
                found.append(f"every:{stride}@{first}")
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """
    A set of ranks for each role; ``default`` holds for roles not named. ``None`` is all ranks.
    """

    text: str = "0"
    default: tuple[tuple[int, int], ...] | None = ((0, 0),)
    by_role: tuple[tuple[str, tuple[tuple[int, int], ...] | None], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Ranks":
        """
        The ranks that ``text`` names. Where only roles are named, no rank of another role is selected.

        Raises:
            SelectionError: a part of it does not follow the grammar.
        """
        plain: list[tuple[int, int]] | None = []
        roles: dict[str, tuple[tuple[int, int], ...] | None] = {}
        for part in (part.strip() for part in text.split(",")):
            role, separator, value = part.partition("=")
            if separator:
                if not role.strip():
                    raise SelectionError(f"ranks {part!r}: no role before '='; the grammar is {RANK_GRAMMAR}")
                if role.strip() in roles:
                    joined = f"join its ranks by +: {role.strip()}=0+2"
                    raise SelectionError(f"ranks {text!r:.{SHOWN}}: {role.strip()!r} is named twice; {joined}")
                roles[role.strip()] = _ranks(value.strip(), part)
            else:
                ranks = _ranks(part, part)
                plain = None if ranks is None or plain is None else [*plain, *ranks]
        return cls(text=text.strip(), default=None if plain is None else tuple(plain), by_role=tuple(roles.items()))

    def holds(self, *, role: str, rank: int) -> bool:
        """
        Whether rank ``rank`` of ``role`` is selected.
        """
        ranges = dict(self.by_role).get(role, self.default)
        return ranges is None or any(first <= rank <= last for first, last in ranges)


def _ranks(value: str, part: str) -> tuple[tuple[int, int], ...] | None:
    if value == "all":
        return None
    ranges = []
    for item in value.split("+"):
        match = _RANGE.fullmatch(item) or re.fullmatch(rf"({_N})", item)
        if not match:
            raise SelectionError(f"ranks {part!r:.{SHOWN}} cannot be read; the grammar is {RANK_GRAMMAR}")
        first, last = int(match[1]), int(match[match.re.groups])
        if first > last:
            raise SelectionError(f"ranks {part!r}: {first} is after {last}; write {last}-{first}")
        ranges.append((first, last))
    return tuple(ranges)


def by_role(text: str, *, what: str) -> dict[str, str]:
    """
    One value for all roles (key ``""``), or one for each role: ``torch`` or ``trainer=torch,rollouter=vllm``.

    Raises:
        SelectionError: a part is empty, or a role is named twice.
    """
    values: dict[str, str] = {}
    for part in (part.strip() for part in text.split(",")):
        role, separator, value = part.rpartition("=")
        if not value or (separator and not role):
            raise SelectionError(f"{what} {text!r}: {part!r} is not VALUE or ROLE=VALUE")
        if role in values:
            raise SelectionError(f"{what} {text!r}: two values for {role or 'all roles'}")
        values[role] = value
    return values
