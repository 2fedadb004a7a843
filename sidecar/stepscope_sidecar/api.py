"""
The HTTP side of the sidecar: the page of the run, its JSON, its artifacts, and the two orders a person can give.

Owns routes, who may call them, and which files may leave. Reads the store through a reader of its own on a worker
thread; asks the live controller on the event loop alone. Numbers for Prometheus come from ``metrics``.
"""

import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from stepscope.errors import StepscopeError
from stepscope.names import State
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.gate import Gate
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.pages import run_page
from stepscope_sidecar.reader import Reader, open_reader
from stepscope_sidecar.rows import WindowRow
from stepscope_sidecar.steptable import step_rows

MAX_BODY = 64 * 1024
"""Bytes of an order; the longest selection that makes sense has a few hundred."""

MAX_SPANS = 20_000
"""Spans in one answer, about 20 MB of JSON; a step has at most some 2,000 by its budget."""

MAX_STEPS = 200
"""Steps in one answer unless the caller asks for more or fewer: what a page can show and a person can read."""

PAGE_STEPS = 60
"""Steps on the page, newest first; the rest is in ``/api/steps``."""

STEP_FOLDER = re.compile(r"step-(\d+)")

MEDIA_TYPES = {".json": "application/json", ".gz": "application/gzip", ".txt": "text/plain; charset=utf-8"}
"""A packed recording is sent as the file it is, so that its bytes are those of ``sha256``."""


class Live(Protocol):
    """
    The controller, as this module needs it. Called on the event loop; answers at once.
    """

    def status(self) -> Mapping[str, object]:
        """
        The run as it is now. The page shows of it, where present: ``run``, ``attempt``, ``node``, ``param_version``,
        ``selection``, ``stopped``, ``stopped_by``, ``processes``, ``windows_unfinished``, ``expected``, ``missing``,
        ``overhead`` (ratio by role).
        """

    def set_selection(self, text: str) -> Mapping[str, object]:
        """
        Record the steps that ``text`` names from now on.

        Raises:
            SelectionError: it does not follow the grammar.
        """

    def stop(self) -> Mapping[str, object]:
        """
        Close what is open and open nothing more.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """
    Where answers come from. ``metrics`` and ``estimates`` are called on worker threads, several at once.
    """

    live: Live
    store: Path
    """The attempt's store."""
    directory: Path
    """STEPSCOPE_DIR: artifacts are named relative to it, and nothing outside it is ever served."""
    metrics: Callable[[str], tuple[bytes, str]]
    """From an ``Accept`` header to a body and its content type."""
    estimates: Callable[[], Mapping[str, Estimate]] | None = None
    """The overhead of each role as last estimated; None has it estimated from the store at each call."""


def create_app(sources: Sources, *, token: str = "") -> Starlette:
    """
    The application. With a ``token`` it may be bound anywhere and demands it; without, it answers loopback names only.
    """
    routes = _Routes(sources)
    return Starlette(
        routes=[
            Route("/", routes.page),
            Route("/healthz", routes.health),
            Route("/metrics", routes.metrics),
            Route("/api/status", routes.status),
            Route("/api/windows", routes.windows),
            Route("/api/spans", routes.spans),
            Route("/api/steps", routes.steps),
            Route("/api/profile", routes.profile, methods=["POST"]),
            Route("/api/stop", routes.stop, methods=["POST"]),
            Route("/artifacts/{path:path}", routes.artifact),
        ],
        middleware=[Middleware(Gate, token=token)],
        exception_handlers={
            HTTPException: _refused,
            StoreError: _unreadable,
            StepscopeError: _wrong,
        },
    )


class _Routes:
    """
    One method per route. Plain functions run on a worker thread, coroutines on the event loop.
    """

    def __init__(self, sources: Sources) -> None:
        self._from = sources

    async def page(self, _: Request) -> Response:
        status = self._from.live.status()
        return HTMLResponse(await run_in_threadpool(self._page, status))

    def health(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    def metrics(self, request: Request) -> Response:
        body, kind = self._from.metrics(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind})

    async def status(self, _: Request) -> Response:
        return _json(dict(self._from.live.status()))

    def windows(self, request: Request) -> Response:
        step = _whole(request, "step")
        with open_reader(self._from.store) as reader:
            return _json([row.json(directory=self._from.directory) for row in reader.windows(step=step)])

    def spans(self, request: Request) -> Response:
        step = _whole(request, "step")
        limit = min(_whole(request, "limit") or MAX_SPANS, MAX_SPANS)
        with open_reader(self._from.store) as reader:
            return _json([row.json() for row in reader.spans(step=step, limit=limit)])

    def steps(self, request: Request) -> Response:
        last = _whole(request, "last")
        with open_reader(self._from.store) as reader:
            rows = step_rows(reader, estimates=self._estimates(), last=MAX_STEPS if last is None else last)
            return _json([row.json() for row in rows])

    async def profile(self, request: Request) -> Response:
        steps = (await _order(request)).get("steps")
        if not isinstance(steps, str):
            raise HTTPException(400, 'say which steps: {"steps": "5,8-9"}')
        return _json(dict(self._from.live.set_selection(steps)))

    async def stop(self, request: Request) -> Response:
        await _order(request)
        return _json(dict(self._from.live.stop()))

    def artifact(self, request: Request) -> Response:
        path = request.path_params["path"]
        with open_reader(self._from.store) as reader:
            file, window = find_artifact(reader, path, directory=self._from.directory)
        name = f"step-{window.step}-{window.role}-{window.rank}-{file.name}"
        kind = MEDIA_TYPES.get(file.suffix, "application/octet-stream")
        return FileResponse(file, media_type=kind, filename=name)

    def _page(self, status: Mapping[str, object]) -> str:
        with open_reader(self._from.store) as reader:
            estimates = self._estimates()
            steps = step_rows(reader, estimates=estimates, last=PAGE_STEPS)
            shown = {row.step for row in steps}
            windows = [row for row in reader.windows() if row.step in shown or not State(row.state).final]
        return run_page(status, steps=steps, windows=windows, estimates=estimates)

    def _estimates(self) -> Mapping[str, Estimate]:
        return Costs(self._from.store).refresh() if self._from.estimates is None else self._from.estimates()


def find_artifact(reader: Reader, path: str, *, directory: Path) -> tuple[Path, WindowRow]:
    """
    The file at ``path`` below ``directory``, if it is, or lies in, the artifact of a window in the store.

    Raises:
        HTTPException: it is not; nothing is said about what else there may be.
    """
    absent = HTTPException(404, "no such artifact")
    parts = PurePosixPath(path).parts
    if "\0" in path or not parts or ".." in parts or parts[0] == "/" or path != "/".join(parts):
        raise absent
    step = next((int(match[1]) for part in parts if (match := STEP_FOLDER.fullmatch(part))), None)
    window = next(
        (row for row in reader.windows(step=step) if row.artifact and PurePosixPath(path).is_relative_to(row.artifact)),
        None,
    )
    if window is None:
        raise absent
    root = directory.resolve()
    file = root / path
    try:
        # A link anywhere on the way makes the resolved path another one.
        plain = file.resolve(strict=True) == file and stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        raise absent from None
    if not plain:
        raise absent
    return file, window


async def _order(request: Request) -> dict[str, object]:
    """
    The JSON object that was posted.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        # Browsers ask before they send this type to another site, so a foreign page cannot give orders.
        raise HTTPException(415, "send application/json")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY:
                raise HTTPException(413, f"more than {MAX_BODY} bytes")
    except ClientDisconnect:
        raise HTTPException(400, "the body was cut off") from None
    try:
        found = orjson.loads(bytes(body) or b"{}")
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise HTTPException(400, "not a JSON object")
    return found


def _whole(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,15}", text):
        raise HTTPException(400, f"{name}={text[:40]!r} is not a whole number")
    return int(text)


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), status, media_type="application/json")


def _error(message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps({"error": message}), status, dict(headers or {}), media_type="application/json")


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.detail, error.status_code, error.headers)


def _unreadable(_: Request, error: Exception) -> Response:
    return _error(str(error), 503)


def _wrong(_: Request, error: Exception) -> Response:
    return _error(str(error), 400)
