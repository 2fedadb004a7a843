"""
How many parts a trace request in protobuf has, before it is parsed: an empty one takes two bytes on the wire, next to
none compressed, and a hundred in memory.

Pure. Walks over requests, resources and scopes alone; what a span holds is left alone.
"""

INTO = (1, 2)
"""Fields that are walked into, by number: a request's ``resource_spans``, and of these the ``scope_spans``."""

VARINT, LENGTH = 0, 2
FIXED = {1: 8, 5: 4}
"""Wire types, those of fixed size with their bytes; those of groups are in no request for traces."""

SMALLEST = 2
"""Bytes of the smallest field."""

MAX_VARINT = 10
"""Bytes of a number."""


def over(body: bytes, *, most: int) -> bool:
    """
    Whether ``body`` has more than ``most`` parts; one that has no room for them, as nearly all, is not walked.

    Raises:
        ValueError: it is no protobuf.
    """
    return len(body) > SMALLEST * most and count(body, most=most) > most


def count(body: bytes, *, most: int) -> int:
    """
    The fields of requests, resources and scopes in ``body``, spans among them; of more than ``most``, one more.

    Raises:
        ValueError: it is no protobuf.
    """
    seen, within = 0, [(0, len(body), 0)]
    while within:
        at, end, level = within.pop()
        while at < end:
            seen += 1
            if seen > most:
                return seen
            tag, at = _number(body, at)
            kind, size = tag & 7, 0
            if kind == LENGTH:
                size, at = _number(body, at)
                if level < len(INTO) and tag >> 3 == INTO[level]:
                    within.append((at, at + size, level + 1))
            elif kind == VARINT:
                _, at = _number(body, at)
            elif kind in FIXED:
                size = FIXED[kind]
            else:
                raise ValueError(f"wire type {kind}")
            at += size
        if at != end:
            raise ValueError("a field is longer than what it is in")
    return seen


def _number(body: bytes, at: int) -> tuple[int, int]:
    """
    The number at ``at``, and where it ends.
    """
    try:
        value = body[at]
        if value < 0x80:
            return value, at + 1
        value &= 0x7F
        for place in range(1, MAX_VARINT):
            byte = body[at + place]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value, at + place + 1
    except IndexError:
        pass
    raise ValueError("a number is cut off")
