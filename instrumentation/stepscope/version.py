"""
The process's place in the run: which param_version is in force, which step runs, whether it is inside it.

Pure: decides what a boundary call means; :mod:`stepscope.boundary` acts on it. ``step = param_version + 1`` always.
"""

import operator
from dataclasses import dataclass
from enum import Enum

MAX_VERSION = 2**63 - 1
"""OTLP and SQLite hold 64 bits; what is larger, or its step, would cost the spans that carry it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """
    A version in force and the step that runs under it. ``partial``: the run ends before this step's update.
    """

    param_version: int
    partial: bool = False

    @property
    def step(self) -> int:
        """
        The step that runs while this version is in force.
        """
        return self.param_version + 1


class Verdict(Enum):
    """
    What a version told at a boundary means.
    """

    NEXT = "next"
    REPEAT = "repeat"
    JUMP = "jump"
    UNUSABLE = "unusable"


def usable(version: object) -> int | None:
    """
    The number that ``version`` is, if it can be a version's.
    """
    if isinstance(version, bool) or not hasattr(version, "__index__"):
        return None
    try:
        told = operator.index(version)
    except Exception:  # noqa: BLE001 - an array's, of anybody's making, says only then that it is no number
        return None
    return told if 0 <= told < MAX_VERSION else None


class StepState:
    """
    A state machine moved by boundary calls alone. Not thread-safe: boundary calls come one after another.
    """

    def __init__(self, *, param_version: int = 0, total_steps: int | None = None) -> None:
        self._total_steps = total_steps
        self._now = self.moment(param_version)
        self._inside = False
        self._window_step = 0

    @property
    def now(self) -> Moment:
        """
        The version in force and its step.
        """
        return self._now

    @property
    def inside(self) -> bool:
        """
        Whether the process is between the boundaries of its step.
        """
        return self._inside

    @property
    def total_steps(self) -> int | None:
        """
        How many updates the run will make, where that is known.
        """
        return self._total_steps

    def moment(self, param_version: int) -> Moment:
        """
        The moment at which ``param_version`` is in force, now or not.
        """
        return Moment(
            param_version=param_version,
            partial=self._total_steps is not None and param_version + 1 > self._total_steps,
        )

    def judge(self, version: object) -> tuple[Verdict, int]:
        """
        What ``version``, told by a boundary call, means; and the version to take (the present one if unusable).
        """
        told = usable(version)
        if told is None:
            return Verdict.UNUSABLE, self._now.param_version
        if told == self._now.param_version:
            return Verdict.REPEAT, told
        if told == self._now.param_version + 1:
            return Verdict.NEXT, told
        return Verdict.JUMP, told

    def claim_window(self) -> bool:
        """
        Whether a window may be asked for in this step; the claim is spent by asking. Partial steps have none.
        """
        if self._now.partial or self._now.step < 1 or self._window_step == self._now.step:
            return False
        self._window_step = self._now.step
        return True

    def enter(self) -> None:
        """
        The process enters its step.
        """
        self._inside = True

    def leave(self) -> None:
        """
        The process leaves its step; the version stays.
        """
        self._inside = False

    def advance(self, version: int) -> None:
        """
        ``version`` is in force; the process is before the step that it begins.
        """
        self._now = self.moment(version)
        self._inside = False
