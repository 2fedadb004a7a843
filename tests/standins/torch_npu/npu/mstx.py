"""
Marks of mstx: kept in a list instead of being handed to CANN.
"""

import itertools

from ..signatures import real  # noqa: TID252 - checked under one name, imported by another

marks: list[tuple[str, object]] = []
"""``("start", message)`` and ``("end", id)``, in order."""

_ids = itertools.count(1)


class mstx:  # noqa: N801 - the real one's name
    """
    The calls of the real one that a driver needs.
    """

    @staticmethod
    @real("torch_npu.npu.mstx.mstx.range_start")
    def range_start(message: object, stream: object, domain: object) -> int:
        """
        Begin a range; 0 for what is no message.
        """
        if not message or not isinstance(message, str):
            return 0
        marks.append(("start", message))
        return next(_ids)

    @staticmethod
    @real("torch_npu.npu.mstx.mstx.range_end")
    def range_end(range_id: object, domain: object) -> None:
        """
        End a range.
        """
        if not isinstance(range_id, int):
            raise TypeError("not what range_start has given")
        marks.append(("end", range_id))
