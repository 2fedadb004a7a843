"""
The object store that final artifacts are copied to, by way of fsspec: ``s3://``, ``gs://``, ``file://`` and others.

Owns the layout (node, then the artifact's own path), the copying on a thread of its own, and its trying again. What a
recording is, and that it is final, others have decided; the local copy stays. fsspec is imported only when a store is
named. Credentials are the store's own affair: they come from its environment, and never from here.
"""

import contextlib
import importlib
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Protocol

from stepscope import names
from stepscope.errors import ConfigurationError
from stepscope_sidecar import places, sums
from stepscope_sidecar.aside import Aside
from stepscope_sidecar.rows import Value, WindowRow

LOG = logging.getLogger(__name__)

WAITING, STORED, FAILING = "waiting", "stored", "failing"
"""How a copy stands; ``failing`` is tried again, and its window says why."""

FIRST_BACKOFF = 2.0
LONGEST_BACKOFF = 120.0
"""Seconds between tries: a store that is away for an hour is found again within two minutes."""

REASON = 300
"""Characters of why a copy fails that are kept with its window."""

PIECE = 1024**2
"""Bytes read at a time."""

ANSWER = 15.0
"""Seconds for a piece: a store that answers at all does so in one or two."""

READS = 16
"""Reads at a time, those that were never answered included: four times as many as are fetched at once."""

FAREWELL = 2.0
"""Seconds that a copy in progress may take when the sidecar ends; the next start makes it anew."""


class Files(Protocol):
    """
    Of an fsspec file system, what is used.
    """

    def put_file(self, lpath: str, rpath: str) -> object:
        """
        Copy a local file.
        """

    def makedirs(self, path: str, exist_ok: bool = False) -> object:
        """
        Make a folder, where there are such.
        """

    def open(self, path: str, mode: str = "rb") -> IO[bytes]:
        """
        Open a file.
        """

    def isdir(self, path: str) -> bool:
        """
        Whether it is a folder.
        """


class Objects:
    """
    One object store. :meth:`put` blocks, and may raise whatever the store's own library raises; reading has a deadline
    for each piece, and holds nobody up who does not wait for it.
    """

    def __init__(self, files: Files, root: str, *, url: str) -> None:
        """
        Use :meth:`open`.
        """
        self._files = files
        self._root = root.rstrip("/")
        self._url = url
        self._aside = Aside("stepscope-store", seconds=ANSWER, most=READS)

    @classmethod
    def open(cls, url: str) -> "Objects":
        """
        The store at ``url``; nothing is asked of it yet.

        Raises:
            ConfigurationError: fsspec, or what it needs for such an address, is not installed.
        """
        try:
            core: Any = importlib.import_module("fsspec.core")
            files, root = core.url_to_fs(url)
        except ImportError as error:
            raise ConfigurationError(
                f"{names.ARTIFACTS}: {error}; pip install '/path/to/stepscope[objects]', and what fsspec names for this"
                " store"
            ) from None
        except Exception as error:  # noqa: BLE001 - each store's library has errors of its own
            raise ConfigurationError(f"{names.ARTIFACTS}: {error}") from None
        return cls(files, str(root), url=url)

    def url(self, node: str, path: str) -> str:
        """
        The address of ``path`` of ``node``, for people.
        """
        return f"{self._url}/{node}/{path}"

    def put(self, row: WindowRow, *, directory: Path) -> None:
        """
        Copy the artifact of ``row`` from below ``directory``.
        """
        source = places.enclosed(directory, row.artifact)
        if source is None:
            name = Path(row.artifact).name
            if (directory / row.artifact).exists():
                raise OSError(f"{name} lies behind a link, and is not copied")
            raise FileNotFoundError(f"{name} is gone")
        for file in _files(source):
            target = f"{self._root}/{row.node}/{file.relative_to(directory.resolve()).as_posix()}"
            self._files.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH120 - no path of this machine
            self._files.put_file(str(file), target)

    async def read(self, node: str, path: str) -> AsyncIterator[bytes]:
        """
        The bytes of ``path`` of ``node``.

        Raises:
            IsADirectoryError: it is a folder.
            OSError: it cannot be read, or the store does not answer.
        """
        try:
            async with contextlib.aclosing(self._aside.read(lambda: self._read(node, path))) as pieces:
                async for piece in pieces:
                    yield piece
        except IsADirectoryError:
            raise
        except TimeoutError:
            raise OSError("the object store does not answer") from None
        except Exception as error:
            raise OSError(f"the object store says {type(error).__name__}") from error

    def _read(self, node: str, path: str) -> Generator[bytes]:
        place = f"{self._root}/{node}/{path}"
        if self._files.isdir(place):
            raise IsADirectoryError(place)
        with self._files.open(place, "rb") as file:
            while piece := file.read(PIECE):
                yield piece


def _files(source: Path) -> list[Path]:
    """
    The artifact, or the files in it and their list; a link is none of them.
    """
    if not source.is_dir():
        return [source]
    found = sorted(path for path in source.rglob("*") if path.is_file() and not path.is_symlink())
    beside = source.with_name(source.name + sums.SUFFIX)
    return [*found, *([beside] if beside.is_file() and not beside.is_symlink() else [])]


class Uploads:
    """
    Copies artifacts one after the other, on a thread of its own, until each is stored.
    """

    def __init__(self, objects: Objects, *, directory: Path, told: Callable[[WindowRow], None]) -> None:
        """
        Copy from below ``directory``; ``told``, called on the thread, gets each row as its copy stands now.
        """
        self._objects = objects
        self._directory = directory
        self._told = told
        self._waiting: deque[WindowRow] = deque()
        self._more = threading.Condition()
        self._closing = False
        self._busy = 0
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def pending(self) -> int:
        """
        Artifacts that are not stored yet.
        """
        with self._more:
            return len(self._waiting) + self._busy

    @property
    def troubles(self) -> list[str]:
        """
        Why nothing is copied any more; nothing where all is well.
        """
        if self._failure is None:
            return []
        return [f"recordings are not copied to the object store until the next start: {self._failure!r}"]

    def start(self) -> None:
        """
        Begin to copy.
        """
        self._thread = threading.Thread(target=self._run, name="stepscope-objects", daemon=True)
        self._thread.start()

    def submit(self, row: WindowRow, *, first: Callable[[WindowRow], object] = bool) -> WindowRow:
        """
        Copy the artifact of ``row``; answers the row as it stands, which ``first`` is told before the copy can be.
        """
        row = self._stands(row, WAITING)
        first(row)
        with self._more:
            self._waiting.append(row)
            self._more.notify()
        return row

    def close(self, *, timeout: float = FAREWELL) -> None:
        """
        End; what is not stored is copied after the next start.
        """
        with self._more:
            self._closing = True
            self._more.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            backoff = FIRST_BACKOFF
            while (row := self._next()) is not None:
                if self._copy(row):
                    backoff = FIRST_BACKOFF
                    continue
                with self._more:
                    self._more.wait_for(lambda: self._closing, backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF)
        except BaseException as error:
            # A thread that ends without a word is a store that stays empty.
            self._failure = error
            LOG.exception("the thread that copies to the object store has ended")

    def _copy(self, row: WindowRow) -> bool:
        """
        Copy the artifact of ``row``; False where it, or the store, needs another try.
        """
        again: WindowRow | None = row
        try:
            self._objects.put(row, directory=self._directory)
            self._told(self._stands(row, STORED))
            again = None
        except Exception as error:  # noqa: BLE001 - each store's library has errors of its own
            LOG.warning("the recording of window %s is not in the object store yet: %r", row.window, error)
            again = self._failed(row, error)
        finally:
            with self._more:
                self._busy = 0
                if again is not None:
                    self._waiting.append(again)
        return again is None

    def _failed(self, row: WindowRow, error: Exception) -> WindowRow | None:
        """
        Say so; what is to be tried again, or None where somebody has removed it.
        """
        why = f"{type(error).__name__}: {error}"[:REASON]
        if (row.stored, row.stored_reason) != (FAILING, why):
            row = self._stands(row, FAILING, why=why)
            try:
                self._told(row)
            except Exception:
                LOG.exception("that the copy of window %s fails cannot be told", row.window)
        try:
            (self._directory / row.artifact).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            # It is not known to be gone.
            return row
        return row if places.enclosed(self._directory, row.artifact) else None

    def _next(self) -> WindowRow | None:
        with self._more:
            self._more.wait_for(lambda: self._closing or bool(self._waiting))
            if self._closing:
                return None
            self._busy = 1
            return self._waiting.popleft()

    def _stands(self, row: WindowRow, stored: str, *, why: str = "") -> WindowRow:
        other: dict[str, Value] = {**row.other, "stored": stored}
        other.pop("stored_reason", None)
        if why:
            other["stored_reason"] = "".join(character if character.isprintable() else " " for character in why)
        if stored == STORED:
            other["stored_url"] = self._objects.url(row.node, row.artifact)
        return replace(row, other=other)
