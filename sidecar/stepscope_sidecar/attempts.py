"""
All attempts in STEPSCOPE_DIR: a page that lists them, and the pages of each, from its store.

One sidecar serves its own run; the others beside it are read as ``stepscope serve`` would, so that a person has one
address for all of them. Nothing can be ordered of them here.
"""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from stepscope_sidecar import orphans, schema
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.extent import steps_of
from stepscope_sidecar.nodefolder import directory
from stepscope_sidecar.pages import AttemptShown, runs_page
from stepscope_sidecar.pages.run import UNATTENDED, UNKNOWN_END, over, stage
from stepscope_sidecar.reader import open_reader

LISTED = 100
"""Attempts on the page, newest first: each is a file to open."""

OPEN = 16
"""Attempts whose applications are kept; each holds what was read of its last steps."""

Application = Callable[[Path], ASGIApp]
"""From a store to what serves it."""


class Attempts:
    """
    The attempts beside that of ``store``.
    """

    def __init__(self, store: Path, *, application: Application) -> None:
        """
        List what is in the STEPSCOPE_DIR of ``store``, and serve each by what ``application`` makes.
        """
        self._store = store
        self._application = application
        self._apps: OrderedDict[str, ASGIApp] = OrderedDict()

    def routes(self) -> list[BaseRoute]:
        """
        Where they are.
        """
        return [Route("/runs", self.listed), Route("/runs/", _above), Mount("/runs/{folder}", app=self.one)]

    async def listed(self, _: Request) -> Response:
        """
        The page of all.
        """
        return HTMLResponse(await run_in_threadpool(self._page))

    async def one(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Whatever is asked of one attempt.
        """
        folder = scope["path_params"]["folder"]
        store = directory(self._store.parent) / folder / schema.FILE
        if folder.startswith(".") or not await run_in_threadpool(_is_store, store):
            raise HTTPException(404, "no such run")
        if folder not in self._apps:
            self._apps[folder] = self._application(store)
        self._apps.move_to_end(folder)
        while len(self._apps) > OPEN:
            self._apps.popitem(last=False)
        await self._apps[folder](scope, receive, send)

    def _page(self) -> str:
        folders = [path.parent for path in directory(self._store.parent).glob(f"[!.]*/{schema.FILE}")]
        found = sorted((one for one in folders if _is_store(one / schema.FILE)), key=_changed, reverse=True)
        own = self._store.parent
        shown = [_attempt(folder, own=folder == own) for folder in found[:LISTED]]
        return runs_page(shown, more=len(found) - len(shown))


def _above(_: Request) -> Response:
    return RedirectResponse("../runs")


def _is_store(store: Path) -> bool:
    # ``latest`` is a link to one of them, and a link that leads elsewhere is nobody's run.
    try:
        return store.is_file() and not store.is_symlink() and not store.parent.is_symlink()
    except OSError:
        # A name that is too long for one, or what may not be looked at.
        return False


def _changed(folder: Path) -> float:
    return (folder / schema.FILE).stat().st_mtime


def _attempt(folder: Path, *, own: bool) -> AttemptShown:
    live = orphans.attended(folder)
    try:
        with open_reader(folder / schema.FILE) as reader:
            processes, revisions = reader.processes(), reader.selections()
            windows = [*orphans.shown(reader.windows(), attended=live), *reader.elsewhere()]
            recordings = sum(bool(row.artifact) for row in windows)
            meta = reader.meta
            status = {"processes": orphans.processes(processes, attended=live), "unattended": not live}
            state, ended = stage(status, windows), over(status)
            steps = max(steps_of(reader, over=ended), default=0)
            if not ended:
                steps = max([steps, *(row.entered_step for row in processes)])
    except StoreError:
        return AttemptShown(folder=folder.name, run="", attempt="", live=live, own=own, trouble="cannot be read")
    return AttemptShown(
        folder=folder.name,
        run=meta.get("run", ""),
        attempt=meta.get("attempt", ""),
        live=live,
        left=state if state in {UNATTENDED, UNKNOWN_END} else "",
        own=own,
        began_unix=min((row.registered_unix_ns for row in processes), default=0) / 1e9,
        steps=steps,
        recordings=recordings,
        selection=revisions[-1].text if revisions else "",
    )
