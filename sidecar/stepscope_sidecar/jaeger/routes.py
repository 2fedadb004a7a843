"""
The endpoints of Jaeger's query API that its UI and Grafana's data source for Jaeger call.

Owns paths, parameters and answers. Each answer is bounded in time and spans, and few are made at once: a question is
never in the way of the spans that come in. The newer UI asks for lists under ``/api/v3``, for a trace as ever.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stepscope_sidecar.errors import StoreError, StoreSlowError
from stepscope_sidecar.jaeger import search, shape
from stepscope_sidecar.jaeger.query import QueryError, Search, made, read_search, stored, tag_object, trace_id
from stepscope_sidecar.jaeger.summaries import summary
from stepscope_sidecar.reader import Moment, open_reader

SECONDS = 8.0
"""For one answer: Jaeger's UI gives up after 10 s, Grafana after 30 s."""

AT_ONCE = 2
"""Answers in the making: each may hold some 100 MB, and they share the interpreter with the spans that come in."""

DEPENDENCY_LOOKBACK_MS = 24 * 3600 * 1000
"""How far back callers are looked for where nobody says; Jaeger's own default."""


def routes(store: Path, *, seconds: float = SECONDS) -> list[Route]:
    """
    The routes, over the store of an attempt. They run on worker threads.
    """
    query = _Query(store, seconds=seconds)
    plain, newer = query.answered(shape.failure), query.answered(_failure)
    return [
        Route("/api/services", plain(query.services)),
        Route("/api/services/{service:path}/operations", plain(query.names)),
        Route("/api/operations", plain(query.operations)),
        Route("/api/traces", plain(query.traces)),
        Route("/api/traces/{trace_id}", plain(query.trace)),
        Route("/api/dependencies", plain(query.dependencies)),
        Route("/api/v3/services", newer(query.services_v3)),
        Route("/api/v3/operations", newer(query.operations_v3)),
        Route("/api/v3/trace-summaries", newer(query.summaries_v3)),
    ]


class _Query:
    """
    One method for each endpoint.
    """

    def __init__(self, store: Path, *, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._turn = threading.BoundedSemaphore(AT_ONCE)

    def answered(
        self, failure: Callable[[str, int], dict[str, Any]]
    ) -> Callable[[Callable[[Request, Moment], object]], Callable[[Request], Response]]:
        """
        Makes an endpoint of a method: what it returns is sent, what it raises becomes a ``failure``.
        """

        def endpoint(method: Callable[[Request, Moment], object]) -> Callable[[Request], Response]:
            def handle(request: Request) -> Response:
                try:
                    with self._moment() as moment:
                        return _json(method(request, moment))
                except QueryError as error:
                    return _json(failure(str(error), 400), 400)
                except NotFoundError as error:
                    return _json(failure(str(error), 404), 404)
                except StoreError as error:
                    # Where the store lies is nobody's business.
                    message = str(error) if isinstance(error, StoreSlowError) else "the store cannot be read"
                    return _json(failure(message, 503), 503)

            return handle

        return endpoint

    def services(self, _: Request, moment: Moment) -> object:
        return shape.answer(search.services(moment))

    def names(self, request: Request, moment: Moment) -> object:
        found = search.operations(moment, request.path_params["service"])
        return shape.answer(sorted({name for name, _ in found}))

    def operations(self, request: Request, moment: Moment) -> object:
        service = request.query_params.get("service")
        if not service:
            raise QueryError("parameter 'service' is required")
        return shape.answer(_operations(request, moment, service))

    def traces(self, request: Request, moment: Moment) -> object:
        wanted = read_search(request.query_params, now_ns=time.time_ns())
        found = search.load(moment, search.find(moment, wanted))
        return shape.answer([shape.trace(item.spans, warnings=item.warnings) for item in found])

    def trace(self, request: Request, moment: Moment) -> object:
        found = search.load(moment, [trace_id(request.path_params["trace_id"])])
        if not found:
            # Not an empty list: Grafana takes the first trace of whatever succeeds.
            raise NotFoundError("trace not found")
        return shape.answer([shape.trace(item.spans, warnings=item.warnings) for item in found])

    def dependencies(self, request: Request, moment: Moment) -> object:
        until = _milliseconds(request, "endTs", default=time.time_ns() // 10**6)
        back = _milliseconds(request, "lookback", default=DEPENDENCY_LOOKBACK_MS)
        found = search.dependencies(moment, start_ns=stored((until - back) * 10**6), end_ns=stored(until * 10**6))
        service = request.query_params.get("service")
        return shape.answer(
            [
                {"parent": caller, "child": called, "callCount": calls}
                for (caller, called), calls in sorted(found.items())
                if not service or service in (caller, called)
            ]
        )

    def services_v3(self, _: Request, moment: Moment) -> object:
        return {"services": search.services(moment)}

    def operations_v3(self, request: Request, moment: Moment) -> object:
        found = _operations(request, moment, request.query_params.get("service", ""))
        return {"operations": [{**item, "spanKind": item["spanKind"] or "internal"} for item in found]}

    def summaries_v3(self, request: Request, moment: Moment) -> object:
        found = search.load(moment, search.find(moment, _search_v3(request)))
        return {"summaries": [summary(item.spans) for item in found]}

    @contextmanager
    def _moment(self) -> Iterator[Moment]:
        if not self._turn.acquire(timeout=self._seconds):
            raise StoreSlowError("too many questions at once; try again in a moment")
        try:
            with open_reader(self._store) as reader, reader.moment(seconds=self._seconds) as moment:
                yield moment
        finally:
            self._turn.release()


class NotFoundError(Exception):
    """
    There is no such trace.
    """


def _operations(request: Request, moment: Moment, service: str) -> list[dict[str, str]]:
    wanted = request.query_params.get("spanKind") or request.query_params.get("span_kind")
    found = search.operations(moment, service)
    return [{"name": name, "spanKind": kind} for name, kind in found if not wanted or kind == wanted.lower()]


def _search_v3(request: Request) -> Search:
    def told(name: str) -> str | None:
        # Written as the newer UI does, and as the description of the API has it.
        return request.query_params.get(f"query.{name}") or None

    attributes = told("attributes")
    return made(
        service=told("serviceName") or "",
        operation=told("operationName") or "",
        tags=tag_object(attributes, name="query.attributes") if attributes else {},
        times=(_moment_ns(told("startTimeMin")), _moment_ns(told("startTimeMax"))),
        durations=(told("durationMin"), told("durationMax")),
        limit=told("searchDepth"),
    )


def _moment_ns(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise QueryError(f"{text[:40]!r} is no time, such as 2026-01-31T12:00:00Z") from None
    if found.tzinfo is None:
        raise QueryError(f"{text[:40]!r} has no time zone: write 2026-01-31T12:00:00Z")
    return int(found.timestamp() * 10**6) * 1000


def _milliseconds(request: Request, name: str, *, default: int) -> int:
    text = request.query_params.get(name)
    if not text:
        return default
    if not text.isdecimal() or len(text) > 15:
        raise QueryError(f"unable to parse param {name!r}: {text[:40]!r} is not a whole number")
    return int(text)


def _failure(message: str, status: int) -> dict[str, Any]:
    return {"error": {"httpCode": status, "message": message}}


def _json(value: object, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")
