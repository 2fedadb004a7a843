"""
What a child process of ours answers: one object as JSON, in a descriptor of its own.

Its standard output is no place for that: whatever is on the job's PYTHONPATH may print there before it begins and after
it ends. Owns the descriptor at both ends; what is asked and answered is of the children and of those who start them.
"""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import orjson


class UnansweredError(Exception):
    """
    The child left no object of JSON.
    """


class Answer:
    """
    Where one child is to write. It is memory: a child need not be read while it writes.
    """

    def __init__(self) -> None:
        """
        Make an empty one.

        Raises:
            OSError: there is no descriptor to be had.
        """
        self.descriptor = os.memfd_create("stepscope-answer")

    def __enter__(self) -> Self:
        """
        To be closed in the end.
        """
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        Let go of it.
        """
        os.close(self.descriptor)

    def read(self) -> Mapping[str, Any]:
        """
        What the child, which has ended, answered.

        Raises:
            UnansweredError: it did not, or not as it should.
        """
        data = os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)
        try:
            found = orjson.loads(data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UnansweredError(
                f"its process answered {data[:80]!r}" if data else "its process ended without an answer"
            )
        return found


def give(descriptor: int, told: Mapping[str, object]) -> None:
    """
    In the child: answer ``told``, and nothing else.
    """
    with open(descriptor, "wb") as file:
        file.write(orjson.dumps(told, option=orjson.OPT_NON_STR_KEYS))
