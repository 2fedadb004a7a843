"""
The errors of the sidecar that a caller can handle.
"""

from stepscope.errors import StepscopeError
from stepscope.names import Reason


class StoreError(StepscopeError):
    """
    The store could not do what was asked; what had been stored before is untouched.
    """


class StoreFullError(StoreError):
    """
    There is no space left where the store lies; the same call works again once there is.
    """


class StoreBusyError(StoreError):
    """
    More bytes wait to be written than may be held in memory; try again in a moment.
    """


class StoreClosedError(StoreError):
    """
    The store has been closed, or its writer has ended.
    """


class StoreSlowError(StoreError):
    """
    A question took longer than it may; a narrower one is answered.
    """


class StoreVersionError(StoreError):
    """
    The file was written by a newer release, or is no store at all.
    """


class DataError(StepscopeError):
    """
    A run cannot be read as data, or its tables cannot be written.
    """


class MergeError(StepscopeError):
    """
    A step cannot be made one timeline, or the file cannot be written; the message says what would help.
    """


class IntakeError(StepscopeError):
    """
    An OTLP request cannot be taken. Carries the HTTP status, the gRPC code and how long to wait, if waiting helps.
    """

    def __init__(self, message: str, *, status: int, code: int, retry_after: float | None = None) -> None:
        """
        Refuse with ``message``.
        """
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class AttachError(StepscopeError):
    """
    A tool that records a process from outside cannot be started or stopped. Carries the reason of its window.
    """

    def __init__(self, message: str, *, reason: Reason) -> None:
        """
        Fail with ``message``.
        """
        super().__init__(message)
        self.reason = reason
