"""
Drives the profiler of an inference server that runs beside this process: vLLM's or SGLang's, by two POSTs.

Owns what such a server is asked and what its answers mean. Replies name no file and a failed start is answered like a
good one. Leaves to ``sessions`` whose a session is and that it ends, HTTP to ``post`` and files to ``traces``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from stepscope import names
from stepscope.errors import StepscopeError
from stepscope.names import Level
from stepscope.profilers import Armed, ForeignProfilerError, LostError, Recording, Request, UnavailableError
from stepscope.profilers.post import Answer, CutOffError, UnreachableError, post
from stepscope.profilers.sessions import (
    FILE_DEADLINE,
    START_DEADLINE,
    STOP_DEADLINE,
    Sessions,
    UnansweredError,
    prefix,
)
from stepscope.profilers.traces import Drop
from stepscope.seam import Identity
from stepscope.servers import Kind, Server, server
from stepscope.settings import Settings

ALREADY = 409
MISSING = frozenset({404, 405})
FORBIDDEN = frozenset({401, 403})

FAILED = 500
ON_THE_WAY = frozenset({502, 503, 504})
"""A proxy's: what the server has done, it does not know."""


class RefusedError(StepscopeError):
    """
    The server answered, and not with success.
    """


class HttpProfiler:
    """
    The tool ``http``: for one server, in the one process that has to do with it.

    Register one with ``stepscope.register_profiler`` after ``init()``, or let the environment name the server.
    """

    name = "http"
    anywhere = True
    """Its coroutines need no event loop of their own: plain boundary calls may drive it."""

    def __init__(
        self,
        url: str = "",
        *,
        kind: str = Kind.VLLM,
        folder: str | Path | None = None,
        any_host: bool = False,
        token_file: str | Path | None = None,
        start_deadline: float = START_DEADLINE,
        stop_deadline: float = STOP_DEADLINE,
        file_deadline: float = FILE_DEADLINE,
    ) -> None:
        """
        Without ``url`` there is no server, and the tool is unavailable.

        ``folder`` is where the server leaves its traces: of vLLM its ``torch_profiler_dir``; SGLang is told.

        Raises:
            ConfigurationError: the server cannot be used as described.
        """
        self._server: Server | None = None
        if url:
            self._server = server(url, kind=kind, folder=folder, any_host=any_host, token_file=token_file)
        self._start_deadline, self._stop_deadline = start_deadline, stop_deadline
        self._sessions = Sessions(
            "server", stop=self._stop, undo=self._undo, file_deadline=file_deadline, anywhere=self.anywhere
        )

    @classmethod
    def configured(cls, settings: Settings, identity: Identity) -> Self:
        """
        The one for the server that the environment names for this process, if it names any.
        """
        made = cls()
        if settings.http_servers is not None:
            made._server = settings.http_servers.of(role=identity.role, rank=identity.rank)
        return made

    def unavailable(self) -> str | None:
        """
        Why it cannot be used here. Asks no server: that there is none shows when a window starts.
        """
        if self._server is None:
            return f"no server is named for this process: set {names.HTTP_PROFILER_URL}, or register an HttpProfiler"
        try:
            self._key(self._server)
        except OSError as error:
            return f"the API key cannot be read: {error}"
        return None

    async def start(self, request: Request) -> Armed:
        """
        Start a session of this window's own; whatever else is on there is left alone.
        """
        place = self._server
        if place is None or self.unavailable():
            raise UnavailableError(self.unavailable())
        level = _level(place, request)
        return await self._sessions.begin(
            request,
            level=level,
            drop=lambda: _drop(place, request),
            start=lambda drop: self._start(place, _asked(place, level, drop)),
        )

    async def stop(self, request: Request, *, keep: bool = True) -> Recording:
        """
        Stop the session, once, and fetch its trace.
        """
        # vLLM answers after all its workers have written; of SGLang's data-parallel ranks only one is waited for.
        settled = self._server is not None and self._server.kind is not Kind.SGLANG
        return await self._sessions.end(request, keep=keep, settled=settled)

    async def _start(self, place: Server, body: Mapping[str, object]) -> None:
        try:
            answer = await self._post("/start_profile", body, self._start_deadline)
        except UnreachableError as error:
            raise UnavailableError(str(error)) from error
        except (TimeoutError, CutOffError) as error:
            raise UnansweredError(f"no answer to the start: {error}") from error
        if not answer.ok:
            raise self._refusal(place, answer)

    async def _stop(self) -> None:
        try:
            answer = await self._post("/stop_profile", {}, self._stop_deadline)
        except UnreachableError as error:
            raise LostError(str(error)) from error
        except CutOffError as error:
            raise LostError(f"no answer to the stop: {error}") from error
        except TimeoutError:
            raise TimeoutError(f"the server has not answered the stop within {self._stop_deadline:g} s") from None
        if not answer.ok:
            raise RefusedError(_said("the stop", answer))

    async def _undo(self) -> None:
        # Any answer will do: SGLang refuses to stop what has not begun.
        await self._post("/stop_profile", {}, self._start_deadline)

    async def _post(self, path: str, body: Mapping[str, object], deadline: float) -> Answer:
        assert self._server is not None
        return await post(self._server, path, body, key=self._key(self._server), deadline=deadline)

    def _refusal(self, place: Server, answer: Answer) -> StepscopeError:
        """
        What it means that a start was answered so.
        """
        if answer.status == ALREADY:
            unsettled = self._sessions.unsettled
            whose = (
                f"perhaps that of window {unsettled}, whose stop went unanswered"
                if unsettled
                else "if a process that was killed has left it on, POST /stop_profile ends it"
            )
            return ForeignProfilerError(f"a profiling session is already on at {place.url}; {whose}")
        if answer.status in MISSING:
            flags = (
                " (vLLM has them only if it was started with --profiler-config)"
                if place.kind is not Kind.SGLANG
                else ""
            )
            return UnavailableError(f"{place.url} has no profiling endpoints{flags}")
        if answer.status in FORBIDDEN:
            return UnavailableError(f"{place.url} wants an API key: set {names.HTTP_PROFILER_TOKEN_FILE}")
        said = _said("the start", answer)
        # SGLang answers so where somebody else's session is on.
        unknown = answer.status in ON_THE_WAY or (answer.status >= FAILED and place.kind is not Kind.SGLANG)
        return UnansweredError(said) if unknown else RefusedError(said)

    @staticmethod
    def _key(place: Server) -> str:
        key = place.token_file.read_text().strip() if place.token_file else ""
        if not key.isascii() or not key.isprintable():
            raise OSError(f"{place.token_file} does not hold one line of plain text")
        return key


def _drop(place: Server, request: Request) -> Drop:
    window = prefix(request)
    if place.kind is not Kind.SGLANG:
        assert place.folder is not None
        return Drop(place.folder, prefix=window, own=place.kind is Kind.VLLM_UNNAMED)
    # A folder that it cannot make or write ends SGLang's scheduler, so it is made here.
    folder = place.folder / window if place.folder else request.folder
    folder.mkdir(parents=True, exist_ok=True)
    return Drop(folder, prefix=window, own=True, made=place.folder is not None)


def _level(place: Server, request: Request) -> Level:
    """
    The level that the server will record at. What vLLM records is fixed by how it was started: operators and devices,
    at the least.
    """
    asked = Level(request.level)
    return Level.OPS if place.kind is not Kind.SGLANG or asked is Level.SPANS else asked


def _asked(place: Server, level: Level, drop: Drop) -> dict[str, object]:
    """
    What the server is asked.
    """
    if place.kind is not Kind.SGLANG:
        return {"profile_prefix": drop.prefix}
    everything = level is Level.FULL
    # Neither start_step nor num_steps: they only arm it, for a count of batches that may never come to be, and an
    # armed start outlives the stop.
    return {
        "output_dir": str(drop.folder),
        "profile_id": drop.prefix,
        "activities": ["GPU"] if level is Level.DEVICE else ["CPU", "GPU"],
        "with_stack": everything,
        "record_shapes": everything,
    }


def _said(what: str, answer: Answer) -> str:
    if 300 <= answer.status < 400:
        return f"the server answered {what} with a redirect ({answer.status}); none is followed"
    return f"the server refused {what} with {answer.status}{f': {answer.detail}' if answer.detail else ''}"
