"""
What a program has printed: the last line of it, which mostly says why it ended.
"""

import os
from pathlib import Path

MAX_SAID = 1000
"""Bytes at the end of a log in which its last line is looked for."""


def last_line(text: str) -> str:
    """
    The last line of ``text`` that is not blank; "" if there is none.
    """
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def last_said(log: Path) -> str:
    """
    The last line in the file ``log``; "" if there is none, or no such file.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_SAID))
            return last_line(file.read(MAX_SAID).decode(errors="replace"))
    except OSError:
        return ""
