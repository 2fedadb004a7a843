"""
The file that names the steps to record while the run goes on: a mounted ConfigMap, or one that people edit.

Owns when its content counts. Read by its path each time, so that a link that is turned to another file is followed.
What cannot be read or parsed changes nothing, and is told once. Blocking: for a thread of its own.
"""

import logging
import os
import stat
from pathlib import Path

from stepscope import names
from stepscope.errors import SelectionError
from stepscope.selection import Selection

LOG = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
"""Longest content that is read: a selection of 10,000 single steps."""


class StepsFile:
    """
    One file, looked at now and then by one thread.
    """

    def __init__(self, path: Path) -> None:
        """
        Watch ``path``, which need not be there yet.
        """
        self._path = path
        self._taken: str | None = None
        self._read: str | None = None
        self._unreadable = self._unusable = ""

    @property
    def trouble(self) -> str:
        """
        What is wrong with it now, for whoever asks; "" if nothing is.
        """
        return self._unreadable or self._unusable

    def first(self, *, since_unix_ns: int) -> Selection | None:
        """
        What it says when the sidecar starts, unless a person has said something since it was written. One look counts:
        nothing is in force yet that half a file could undo, and the next looks take in the rest.
        """
        self._read = self._text()
        found = self._take(self._read)
        if found is None or not since_unix_ns:
            return found
        try:
            return found if self._path.stat().st_mtime_ns > since_unix_ns else None
        except OSError:
            return None

    def look(self) -> Selection | None:
        """
        What it says, where that has changed. Content counts once two looks have found the same: a file that is being
        written is empty for a moment.
        """
        before, self._read = self._read, self._text()
        return self._take(self._read) if self._read == before else None

    def _take(self, text: str | None) -> Selection | None:
        if text is None or text == self._taken:
            return None
        self._taken, self._unusable = text, ""
        try:
            return Selection.parse(",".join(_lines(text)))
        except SelectionError as error:
            self._unusable = self._said(f"{error}; the former selection stays", before=self._unusable)
            return None

    def _text(self) -> str | None:
        try:
            with open(self._path, "rb", opener=_at_once) as file:
                plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                data = file.read(MAX_BYTES + 1) if plain else b""
        except OSError as error:
            # Removed, or not there yet: the former selection stays, and the same content is no news when it is back.
            self._refuse(f"{error.strerror or error}; the selection stays as it is")
            return None
        if not plain:
            self._refuse("no plain file; the selection stays as it is")
            return None
        if len(data) > MAX_BYTES:
            self._refuse(f"longer than {MAX_BYTES} bytes; the former selection stays")
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self._refuse("not text; the former selection stays")
            return None
        self._unreadable = ""
        return text

    def _refuse(self, why: str) -> None:
        self._unreadable = self._said(why, before=self._unreadable)

    def _said(self, why: str, *, before: str) -> str:
        trouble = f"{names.STEPS_FILE}={self._path}: {why}"
        if trouble != before:
            LOG.warning("%s", trouble)
        return trouble


def _at_once(path: str, flags: int) -> int:
    """
    Open without waiting: a pipe that nobody writes into would hold the watching for ever.
    """
    return os.open(path, flags | os.O_NONBLOCK)


def _lines(text: str) -> list[str]:
    """
    The parts of a selection that is written on one line or on several, without what follows a ``#``.
    """
    lines = (line.partition("#")[0].strip().strip(",") for line in text.splitlines())
    return [line for line in lines if line]
