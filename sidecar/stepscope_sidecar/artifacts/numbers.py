"""
A set of whole numbers that are mostly close together, in some bits each.

A recording of an hour has tens of millions of correlation ids; as Python's own set they would take gigabytes.
"""

from collections.abc import Iterator

WIDTH = 512
"""Numbers of one page: an integer of that many bits takes 100 bytes, its place in the dictionary as much again."""

MAX_PAGES = 200_000
"""Pages of one set, about 40 MB: enough for a hundred million ids in a row, or so many that are nowhere near."""


class Numbers:
    """
    Whole numbers from 0. ``full`` once there were too many to keep; then the set says nothing any more.
    """

    __slots__ = ("_pages", "full")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self.full = False

    def __len__(self) -> int:
        return sum(page.bit_count() for page in self._pages.values())

    def __contains__(self, number: int) -> bool:
        return bool(self._pages.get(number // WIDTH, 0) >> number % WIDTH & 1)

    def __iter__(self) -> Iterator[int]:
        """
        The numbers, smallest first.
        """
        for page in sorted(self._pages):
            bits, first = self._pages[page], page * WIDTH
            while bits:
                lowest = bits & -bits
                yield first + lowest.bit_length() - 1
                bits ^= lowest

    def add(self, number: int) -> None:
        """
        Take ``number`` in.
        """
        page = number // WIDTH
        self._pages[page] = self._pages.get(page, 0) | 1 << number % WIDTH
        if len(self._pages) > MAX_PAGES:
            self._pages.clear()
            self.full = True

    def update(self, other: "Numbers", *, between: tuple[int, int] | None = None) -> None:
        """
        Take in all of ``other``, or those strictly ``between`` two numbers.
        """
        for page, bits in other._pages.items():  # noqa: SLF001 - another of our own kind
            if between is not None:
                bits = _clip(bits, page * WIDTH, *between)
            if bits:
                self._pages[page] = self._pages.get(page, 0) | bits
        self.full = self.full or other.full

    def without(self, other: "Numbers") -> "Numbers":
        """
        The numbers that are not in ``other``.
        """
        found = Numbers()
        pages = ((page, bits & ~other._pages.get(page, 0)) for page, bits in self._pages.items())  # noqa: SLF001
        found._pages = {page: bits for page, bits in pages if bits}
        found.full = self.full or other.full
        return found


def _clip(bits: int, first: int, low: int, high: int) -> int:
    begin, end = max(0, low + 1 - first), min(WIDTH, high - first)
    return bits & ((1 << end) - 1) >> begin << begin if end > begin else 0
