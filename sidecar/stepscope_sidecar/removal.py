"""
Removes recordings that have been kept long enough, of this attempt on this node and of nothing else.

A step vanishes as a whole, whenever this process may be killed: its folder is renamed into one that nobody looks into,
then its windows are told to have no recording any more, and only when the store says so are the files removed. What a
killed sidecar left half done the next one finishes.
"""

import asyncio
import logging
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from stepscope.names import State
from stepscope.settings import Settings
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.lifecycle import folder_bytes
from stepscope_sidecar.objects import STORED
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.retention import TOO_MUCH, TOO_OLD, Doomed, Kept, decide
from stepscope_sidecar.rows import WindowRow

LOG = logging.getLogger(__name__)

STEP = re.compile(r"step-(\d{6,})")

ASIDE = re.compile(r"\.removed-(\d+)-(\d+)-(old|much)")
"""First and last of the steps that go together, and why: all that is needed to go on after a kill."""

WORDS = {"old": TOO_OLD, "much": TOO_MUCH}

TOLD = "the recording was removed: {}"


class Removal:
    """
    Keeps an attempt's recordings within what they may be. Use it in the event loop alone.
    """

    def __init__(
        self,
        settings: Settings,
        store: Path,
        *,
        busy: Callable[[], set[int]],
        note: Callable[[WindowRow], None],
        unix_ns: Callable[[], int],
    ) -> None:
        """
        ``busy`` are the steps with a window that is not final, as known at this moment; ``note`` keeps a changed row.
        """
        self._settings = settings
        self._folder = settings.attempt_folder
        self._store = store
        self._busy = busy
        self._note = note
        self._unix_ns = unix_ns
        self._began = self._clean = False

    async def look(self) -> None:
        """
        Remove what is to go now.
        """
        everything = self._settings.keep_seconds is None and self._settings.keep_bytes is None
        # What a run with other settings left half removed is still to go.
        if everything and self._clean:
            return
        try:
            if not self._began:
                await asyncio.to_thread(self._go_on)
                self._began = True
            for doomed in await asyncio.to_thread(self._decide, self._busy()):
                self._set_aside(doomed)
            for row in await asyncio.to_thread(self._clear):
                self._note(row)
            self._clean = not await asyncio.to_thread(lambda: any(self._asides()))
        except (OSError, StoreError) as error:
            LOG.warning("recordings are not removed: %s", error)

    def _go_on(self) -> None:
        """
        Complete what a killed sidecar had begun to set aside.
        """
        for aside, first, last in self._asides():
            for step, folder in self._folders():
                if first <= step <= last:
                    folder.rename(aside / folder.name)

    def _decide(self, busy: set[int]) -> list[Doomed]:
        rows = defaultdict(list)
        for row in self._rows():
            rows[row.step].append(row)
        return decide(
            [
                Kept(
                    step=step,
                    last_step=max((row.last_step for row in rows[step]), default=step),
                    bytes=folder_bytes(folder),
                    closed_unix_ns=max((row.closed_unix_ns for row in rows[step]), default=0),
                    busy=step in busy or any(map(self._unfinished, rows[step])),
                )
                for step, folder in self._folders()
            ],
            unix_ns=self._unix_ns(),
            keep_seconds=self._settings.keep_seconds,
            keep_bytes=self._settings.keep_bytes,
        )

    def _set_aside(self, doomed: Doomed) -> None:
        # In the event loop, as grants are: no window opens in the folder between this look and the renaming.
        if self._busy().intersection(doomed.steps):
            return
        word = next(word for word, why in WORDS.items() if why == doomed.why)
        aside = self._folder / f".removed-{doomed.steps[0]}-{doomed.steps[-1]}-{word}"
        aside.mkdir(exist_ok=True)
        for step, folder in self._folders():
            if step in doomed.steps:
                folder.rename(aside / folder.name)
        LOG.info("recordings of steps %s go: %s", ", ".join(map(str, doomed.steps)), doomed.why)

    def _clear(self) -> list[WindowRow]:
        """
        Remove the files of windows that the store has no recording of any more; the others, as it is to have them.
        """
        found: list[WindowRow] = []
        directory = self._settings.directory.absolute()
        for aside, _, _ in self._asides():
            steps = {step for step, _ in self._folders(aside)}
            gone = [
                row
                for row in self._rows()
                if row.step in steps and row.artifact and not (directory / row.artifact).exists()
            ]
            why = TOLD.format(WORDS[aside.name.rpartition("-")[2]])
            found += [replace(row, artifact="", detail="; ".join(filter(None, (row.detail, why)))) for row in gone]
            if not gone:
                shutil.rmtree(aside)
        return found

    def _rows(self) -> list[WindowRow]:
        with open_reader(self._store) as reader:
            return reader.windows()

    def _unfinished(self, row: WindowRow) -> bool:
        if not State(row.state).final:
            return True
        return bool(self._settings.artifacts) and bool(row.artifact) and row.stored != STORED

    def _asides(self) -> Iterator[tuple[Path, int, int]]:
        for path in sorted(self._folder.glob(".removed-*")):
            match = ASIDE.fullmatch(path.name)
            if match and not path.is_symlink():
                yield path, int(match[1]), int(match[2])

    def _folders(self, below: Path | None = None) -> Iterator[tuple[int, Path]]:
        """
        The folders of steps, each with its step. A link is nobody's to remove.
        """
        for path in sorted((below or self._folder).glob("step-*")):
            match = STEP.fullmatch(path.name)
            if match and path.is_dir() and not path.is_symlink():
                yield int(match[1]), path
