"""
What of a setting may be repeated where it is refused: a log is read by more people than may know a password.

The one place for it. Leaves what a setting may be to whoever reads it.
"""

import re

CREDENTIALS = re.compile(r"^((?:[a-z][a-z0-9+.-]*:)?//)?.*@", re.IGNORECASE | re.DOTALL)


def masked(text: str) -> str:
    """
    ``text`` without what stands before an ``@``, which may be a user and a password, whatever else it was to be.
    """
    return CREDENTIALS.sub(r"\1...@", text)
