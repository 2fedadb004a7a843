"""
The HTTP side of the sidecar: the page of the run, its JSON, its artifacts, and the orders a person can give.

Owns routes and who may call them; which files may leave is ``downloads``'. Reads the store through a reader of its
own on a worker thread; asks the live controller on the event loop alone. Numbers for Prometheus come from ``metrics``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from stepscope.errors import StepscopeError
from stepscope.paths import without_folders
from stepscope_sidecar import addressee, orphans, static
from stepscope_sidecar.attempts import Attempts
from stepscope_sidecar.costs import Costs
from stepscope_sidecar.downloads import find_artifact, media_type
from stepscope_sidecar.errors import StoreError
from stepscope_sidecar.gate import LISTING, Addressed, Gate
from stepscope_sidecar.jaeger.routes import routes as jaeger_routes
from stepscope_sidecar.overhead import Estimate
from stepscope_sidecar.pages import folder_page, refused_page
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.remote import Found, Remote, find
from stepscope_sidecar.roster import missing_objects, node_objects, window_objects
from stepscope_sidecar.rows import Value
from stepscope_sidecar.steptable import step_rows
from stepscope_sidecar.views import Seen, Views

MAX_BODY = 64 * 1024
"""Bytes of an order; the longest selection that makes sense has a few hundred."""

MAX_SPANS = 20_000
"""Spans in one answer, about 20 MB of JSON; a step has at most some 2,000 by its budget."""

MAX_STEPS = 200
"""Steps in one answer unless the caller asks for more or fewer: what a page can show and a person can read."""


class Live(Protocol):
    """
    The controller, as this module needs it. Called on the event loop; answers at once.
    """

    def status(self) -> Mapping[str, object]:
        """
        The run as it is now. The page shows of it, where present: ``run``, ``attempt``, ``node``, ``param_version``,
        ``selection``, ``stopped``, ``stopped_by``, ``processes``, ``windows_unfinished``, ``missing``.
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


Attach = Callable[[Mapping[str, object]], Mapping[str, object]]
"""
Takes the order to record a process along with another, or to end that. Called on the event loop; raises
``StepscopeError``.
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
    sidecar: bool = True
    """Whether this is the run's own sidecar; else its store alone is read."""
    estimates: Callable[[], Mapping[str, Estimate]] | None = None
    """The overhead of each role as last estimated; None has it estimated from the store at each call."""
    attach: Attach | None = None
    """None where nothing can be attached to."""
    remote: Remote | None = None
    """None where artifacts of other nodes are not fetched."""
    trace_view: str = ""
    viewer: str = ""
    """As in the settings: where traces and recordings are shown elsewhere."""
    runs: str = "runs"
    """From the run's first page to that of all runs; further where it is served within another's pages."""
    beside: Callable[[Path], ASGIApp] | None = None
    """From the store of another attempt to what serves it; None where there is but this one."""


def create_app(sources: Sources, *, token: str = "", gated: bool = True) -> Starlette:
    """
    The application. With a ``token`` it may be bound anywhere and demands it; without, it answers loopback names only.
    Not ``gated`` it is for a place within another application, which has let the request in.
    """
    routes = _Routes(sources)
    return Starlette(
        routes=[
            Route("/healthz", routes.health),
            Route("/metrics", routes.metrics),
            Route("/api/status", routes.status),
            Route("/api/windows", routes.windows),
            Route("/api/missing", routes.missing),
            Route("/api/nodes", routes.nodes),
            Route("/api/spans", routes.spans),
            Route("/api/steps", routes.steps),
            Route("/api/profile", routes.profile, methods=["POST"]),
            Route("/api/attach", routes.attach, methods=["POST"]),
            Route("/api/stop", routes.stop, methods=["POST"]),
            *jaeger_routes(sources.store),
            *_pages(sources),
            static.route(),
            Route("/artifacts/{path:path}", routes.artifact),
            Route("/nodes/{node}/artifacts/{path:path}", routes.elsewhere),
        ],
        middleware=[Middleware(Gate, token=token), _addressed(sources)] if gated else [],
        exception_handlers={
            HTTPException: _refused,
            StoreError: _unreadable,
            StepscopeError: _wrong,
        },
    )


def _addressed(sources: Sources) -> Middleware:
    return Middleware(Addressed, run=addressee.run_name(sources.store.parent), sidecar=sources.sidecar)


def _pages(sources: Sources) -> list[BaseRoute]:
    seen = Seen(
        store=sources.store,
        status=sources.live.status,
        estimates=sources.estimates,
        trace_view=sources.trace_view,
        viewer=sources.viewer,
        runs=sources.runs,
    )
    found: list[BaseRoute] = [*Views(seen).routes()]
    return found + (Attempts(sources.store, application=sources.beside).routes() if sources.beside else [])


class _Routes:
    """
    One method per route. Plain functions run on a worker thread, coroutines on the event loop.
    """

    def __init__(self, sources: Sources) -> None:
        self._from = sources

    def health(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    def metrics(self, request: Request) -> Response:
        body, kind = self._from.metrics(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind})

    async def status(self, _: Request) -> Response:
        return _json(dict(self._from.live.status()))

    def windows(self, request: Request) -> Response:
        step = _whole(request, "step")
        attended = self._from.sidecar or orphans.attended(self._from.store.parent)
        with open_reader(self._from.store) as reader:
            rows = orphans.shown(reader.windows(step=step), attended=attended)
            elsewhere = reader.elsewhere(step=step)
        return _json(window_objects(rows, elsewhere, directory=self._from.directory))

    async def missing(self, request: Request) -> Response:
        step, node = _whole(request, "step"), str(self._from.live.status().get("node", ""))

        def read() -> list[dict[str, Value]]:
            with open_reader(self._from.store) as reader:
                return missing_objects(reader, node=node, step=step)

        return _json(await run_in_threadpool(read))

    def nodes(self, _: Request) -> Response:
        with open_reader(self._from.store) as reader:
            return _json(node_objects(reader))

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

    async def attach(self, request: Request) -> Response:
        order = await _order(request)
        if self._from.attach is None:
            raise HTTPException(404, "this sidecar attaches to nothing")
        return _json(dict(self._from.attach(order)))

    async def stop(self, request: Request) -> Response:
        await _order(request)
        return _json(dict(self._from.live.stop()))

    async def artifact(self, request: Request) -> Response:
        try:
            return await run_in_threadpool(self._artifact, request.path_params["path"])
        except HTTPException as error:
            if error.status_code != 404:
                raise
        return await self._fetched(request, node=None)

    async def elsewhere(self, request: Request) -> Response:
        return await self._fetched(request, node=request.path_params["node"])

    async def _fetched(self, request: Request, *, node: str | None) -> Response:
        if self._from.remote is None:
            raise HTTPException(404, "no such artifact")
        found = await run_in_threadpool(self._find, request.path_params["path"], node)
        if request.method == "HEAD":
            # Nobody's node is asked for what is not going to be sent.
            return Response(headers={"content-length": str(found.window.bytes)} if found.whole else {})
        return await self._from.remote.get(found)

    def _find(self, path: str, node: str | None) -> Found:
        with open_reader(self._from.store) as reader:
            return find(reader, path, node=node)

    def _artifact(self, path: str) -> Response:
        with open_reader(self._from.store) as reader:
            found, window = find_artifact(reader, path, directory=self._from.directory)
        name = f"step-{window.step}-{window.role}-{window.rank}-{found.name}"
        if found.is_dir():
            return HTMLResponse(folder_page(name, found), headers={"content-security-policy": LISTING})
        return FileResponse(found, media_type=media_type(found), filename=name)

    def _estimates(self) -> Mapping[str, Estimate]:
        return Costs(self._from.store).refresh() if self._from.estimates is None else self._from.estimates()


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


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _told(request, error.detail, error.status_code, error.headers)


def _unreadable(request: Request, error: Exception) -> Response:
    return _told(request, without_folders(str(error)), 503)


def _wrong(request: Request, error: Exception) -> Response:
    return _told(request, str(error), 400)


def _told(request: Request, message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """
    An error as a page for a browser, which says that it wants one, and as JSON for everybody else.
    """
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return _error(message, status, headers)
    # Relative, as all links are; where the run is within another's pages, to the first of those.
    above = request.scope["path"].removeprefix(request.scope.get("app_root_path", "")).count("/") - 1
    return HTMLResponse(refused_page(message, top="../" * above), status, dict(headers or {}))
