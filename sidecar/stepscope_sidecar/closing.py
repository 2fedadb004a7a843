"""
Things that are used in a ``with`` block and closed at its end.
"""

from typing import Self


class Closing:
    """
    Something with a ``close``.
    """

    def __enter__(self) -> Self:
        """
        Close at the end of the block.
        """
        return self

    def __exit__(self, *raised: object) -> None:
        """
        Close; what was raised goes on.
        """
        self.close()

    def close(self) -> None:
        """
        Free what is held.
        """
        raise NotImplementedError
