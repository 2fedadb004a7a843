"""
Times as whole nanoseconds, exactly: from microseconds or seconds as numbers, text or decimals.

Owns where a double is enough and where the text itself is needed: microseconds since 1970 have steps of a quarter of a
microsecond as doubles, those relative to a base are exact to the nanosecond (see ``LIMIT_US``).
"""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from stepscope_sidecar.traces.trace import Ints

LIMIT_US = 2.0**43
"""Microseconds below which a double's steps are less than a nanosecond. Kineto's relative ones end at 7.9e12."""

MAX_US = 2.0**53
"""Microseconds up to which whole ones are exact as doubles, and fit a column as nanoseconds."""

MAX_NS = 2**63 - 1
"""What a column of times can hold."""

MAX_DIGITS = 18
"""Digits before the point, but one, that a time can have; a number that only looks short may have billions."""

MICROSECOND = Decimal(1000)


def whole_ns(value: object, unit: Decimal = MICROSECOND) -> int | None:
    """
    The nanoseconds that ``value`` says in a ``unit`` of so many of them; None where it says no finite number.
    """
    try:
        if isinstance(value, str):
            exact = Decimal(value.strip())
        elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            exact = Decimal(value)
        else:
            return None
        if not exact.is_finite() or exact.adjusted() > MAX_DIGITS:
            return None
        found = int((exact * unit).to_integral_value())
    except (ArithmeticError, ValueError):
        return None
    return found if abs(found) <= MAX_NS else None


def each_ns(values: Sequence[object]) -> list[int | None]:
    """
    Microseconds as nanoseconds, one by one.
    """
    # Most text has three decimals, as torch_npu writes all times; read as one number it is the same to the digit.
    return [
        int(digits)
        if isinstance(value, str)
        and value[-4:-3] == "."
        and (digits := value[:-4] + value[-3:]).isdecimal()
        and (len(digits) <= MAX_DIGITS or (len(digits) == MAX_DIGITS + 1 and digits < "9"))
        else whole_ns(value)
        for value in values
    ]


def all_ns(values: Sequence[object]) -> Ints | None:
    """
    Microseconds as nanoseconds, in one go; None where some are no finite numbers or not exact as doubles.
    """
    types = set(map(type, values))
    if not types <= {int, float}:
        return None
    try:
        told = np.array(values, dtype=np.float64)
    except OverflowError:
        return None
    if not len(told):
        return np.empty(0, dtype=np.int64)
    limit = LIMIT_US if float in types else MAX_US
    # Written so that NaN fails too.
    if not (told.min() > -limit and told.max() < limit):
        return None
    whole = np.floor(told)
    return whole.astype(np.int64) * 1000 + np.rint((told - whole) * 1000).astype(np.int64)
