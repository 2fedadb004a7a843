"""
The mean reward of the last step that has one, by role, kept among the totals.

What a process says of its whole step counts before what its spans say of parts of it; those are weighted by their
samples. Validation is of no step's samples, and is left out. Runs in the transaction that keeps the spans.
"""

import math
import sqlite3
from collections.abc import Iterable

from stepscope import names
from stepscope_sidecar import totals
from stepscope_sidecar.rows import SpanRow

REWARD = "stepscope_reward"

PLACE, WEIGHT = f"{REWARD}.place", f"{REWARD}.weight"
"""Kept beside it and never exposed: what the value is of (see ``_place``), and how much it weighs."""


def take(connection: sqlite3.Connection, rows: Iterable[SpanRow]) -> None:
    """
    Take what new spans say of their rewards into account, in whatever order they come.
    """
    told: dict[tuple[str, int], tuple[float, float]] = {}
    for row in rows:
        reward = _number(row, names.REWARD)
        if reward is None or row.role is None or row.step is None or row.name == names.VALIDATE:
            continue
        weight = _number(row, names.SAMPLES) or 0.0
        weight = weight if weight > 0 else 1.0
        key = row.role, _place(row.name, row.step)
        total, weights = told.get(key, (0.0, 0.0))
        told[key] = total + reward * weight, weights + weight
    for (role, place), (total, weight) in sorted(told.items()):
        _keep(connection, {"role": role}, place, total, weight)


def _place(name: str, step: int) -> int:
    """
    A later step comes after an earlier one, and a whole step after its parts.
    """
    return 2 * step + (name == names.RL_STEP_PROCESS)


def _keep(connection: sqlite3.Connection, labels: dict[str, str], place: int, total: float, weight: float) -> None:
    before = totals.kept(connection, PLACE, labels)
    if before is not None and before > place:
        return
    if before == place:
        weighed = totals.kept(connection, WEIGHT, labels) or 0.0
        total += (totals.kept(connection, REWARD, labels) or 0.0) * weighed
        weight += weighed
    totals.put(connection, PLACE, labels, place)
    totals.put(connection, WEIGHT, labels, weight)
    totals.put(connection, REWARD, labels, total / weight)


def _number(row: SpanRow, name: str) -> float | None:
    value = row.attributes.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    # Ids and counts beyond what a double holds are nobody's reward.
    return float(value) if abs(value) < 2**63 else None
