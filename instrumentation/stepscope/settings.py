"""
The ``STEPSCOPE_*`` environment, read once at start and checked whole.

Owns defaults and validation for both ends: the instrumentation has no dependency that could do it, and the sidecar
must read the same names alike. A bad value or an unknown name is an error here, never later.
"""

import difflib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from stepscope import names, servers
from stepscope.errors import ConfigurationError
from stepscope.masking import masked
from stepscope.selection import Ranks, Selection, by_role

KNOWN_TOOLS = frozenset(tool.value for tool in names.Tool)
"""Profilers that have a name here."""

NOT_DRIVEN: dict[str, str] = {
    names.Tool.NSYS: (
        "nsys records only what it has launched itself; start the job under `nsys profile -c cudaProfilerApi` and "
        "choose cuda_range, which begins and ends its recording"
    ),
}
"""Those among them that cannot be used, and why: naming one stops the start."""

OF_SERVERS = frozenset(
    map(
        str,
        (
            names.HTTP_PROFILER_KIND,
            names.HTTP_PROFILER_DIR,
            names.HTTP_PROFILER_ANY_HOST,
            names.HTTP_PROFILER_TOKEN_FILE,
        ),
    )
)
"""Settings that say nothing without a server's address."""

REGISTERED_TOOL = re.compile(r"x-[a-z0-9][a-z0-9_-]{0,31}")
"""Names of profilers that a program registers itself: never one of ours, and fit for a folder's name."""

SHARED = (names.STEPS, names.TOOLS, names.LEVEL_ENV, names.RANKS, names.CONTINUOUS)
"""What the processes of one run should agree on, and tell their sidecar."""

LEVELS = frozenset(level.value for level in names.Level)

RUN_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Run and attempt are parts of folder names and of a socket path, which must stay under 107 characters."""

NODES = "nodes"
"""In an attempt's folder on a file system that several nodes share: the folders of those that found it taken."""

STORE_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s?#@]*")
"""Without user or password: they belong into the store's own configuration, because the address is shown."""

PAGE_URL = re.compile(r"https?://[^\s@\"'<>]+")
"""Of a page that ours lead to; without user or password, because it is shown."""

MAX_SOCKET_PATH = 107
"""The kernel's limit on the path of a unix socket, in bytes."""

T = TypeVar("T")

DEFAULT_CAP_SECONDS = 120.0
"""A step of minutes is recorded whole; a profiler forgotten in a step of hours is not."""

DEFAULT_CAP_BYTES = 2 * 1024**3
"""About ten times the recording of a busy step at level `ops`; beyond it no viewer opens the file."""

DEFAULT_CAP_MEMORY = 8 * 1024**3
"""Profilers keep events in memory until they stop; public reports of 512 GiB buffers ended in the OOM killer."""

DEFAULT_BOUNDARY_SECONDS = 1.0
"""An answer takes some milliseconds, of a node whose cores are all busy tenths of a second."""

MAX_BOUNDARY_SECONDS = 60.0
"""A longer wait would be a hang to those who look on."""

DEFAULT_DISK_BUDGET = 50 * 1024**3
"""Recordings of one run on one node; small against a node's scratch disk."""

DEFAULT_REQUEST_SPANS = 2000
"""A step's trace stays under Tempo's default limit of 5 MB at about 310 bytes a span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """
    Everything that the environment can say. ``tools`` maps a role to its profiler; "" is for all others.
    """

    selection: Selection = field(default_factory=Selection)
    tools: dict[str, str] = field(default_factory=lambda: {"": "torch"})
    level: str = names.Level.SPANS
    ranks: Ranks = field(default_factory=Ranks)
    directory: Path = Path("runs")
    max_overhead: float | None = None
    http: tuple[str, int] = ("127.0.0.1", 0)
    disabled: bool = False
    run: str = ""
    attempt: str = ""
    node: str = ""
    """What this node is called; "": what the machine is."""
    below: str = ""
    """The folder in the attempt's that is this node's own; "": the attempt's itself. For the sidecar to say."""
    socket: Path | None = None
    steps_file: Path | None = None
    continuous: bool = False
    stop_after: bool = False
    """A replica's profiler stops once generation has resumed after the update, not before the update."""
    cap_seconds: float = DEFAULT_CAP_SECONDS
    cap_bytes: int = DEFAULT_CAP_BYTES
    cap_memory: int = DEFAULT_CAP_MEMORY
    boundary_seconds: float = DEFAULT_BOUNDARY_SECONDS
    disk_budget: int = DEFAULT_DISK_BUDGET
    keep_seconds: float | None = None
    """None: recordings are kept however old they are."""
    keep_bytes: int | None = None
    """None: however many bytes there are."""
    request_spans: int = DEFAULT_REQUEST_SPANS
    otlp_http: tuple[str, int] = ("127.0.0.1", 0)
    otlp_grpc: tuple[str, int] | None = ("127.0.0.1", 0)
    artifacts: str = ""
    token_file: Path | None = None
    trace_view: str = ""
    viewer: str = ""
    http_servers: servers.Servers | None = None

    def tool(self, role: str) -> str:
        """
        The profiler configured for ``role``.
        """
        return self.tools.get(role) or self.tools.get("") or "torch"

    @property
    def attempt_folder(self) -> Path:
        """
        Where the store and the artifacts of this attempt lie, absolute.
        """
        folder = self.directory.absolute() / f"{self.run}-{self.attempt}"
        return folder / NODES / self.below if self.below else folder

    @property
    def socket_path(self) -> Path:
        """
        The control socket of this user's sidecar for this attempt on this node.
        """
        # Of fixed length, because a path has little room.
        mark = f".{hashlib.sha256(self.node.encode()).hexdigest()[:8]}" if self.node else ""
        return self.socket or socket_folder() / f"{self.attempt}{mark}.sock"


def socket_folder() -> Path:
    """
    The folder (mode 0700) that holds this user's control sockets.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"stepscope-{os.getuid()}"


def read(environment: Mapping[str, str] | None = None) -> Settings:
    """
    The settings in ``environment`` (default: this process's).

    Raises:
        ConfigurationError: a value cannot be used, or a ``STEPSCOPE_*`` name is unknown.
    """
    env = os.environ if environment is None else environment
    _check_names(env)
    value: dict[str, str] = {str(name): env[name].strip() for name in names.ENVIRONMENT if env.get(name, "").strip()}
    defaults = Settings()

    def get(name: str, default: str) -> str:
        return value.get(name, default)

    level = get(names.LEVEL_ENV, defaults.level).lower()
    if level not in LEVELS:
        raise ConfigurationError(f"{names.LEVEL_ENV}={masked(level)!r} is unknown; levels are {', '.join(names.Level)}")
    return Settings(
        selection=_said(names.STEPS, lambda: Selection.parse(get(names.STEPS, ""))),
        tools=_said(names.TOOLS, lambda: _tools(get(names.TOOLS, "torch"))),
        level=level,
        ranks=_said(names.RANKS, lambda: Ranks.parse(get(names.RANKS, "0"))),
        directory=Path(get(names.DIR, "runs")),
        max_overhead=_ratio(names.MAX_OVERHEAD, value.get(names.MAX_OVERHEAD)),
        http=_address(names.HTTP, get(names.HTTP, "127.0.0.1:0")),
        disabled=_flag(names.DISABLED, value.get(names.DISABLED)),
        run=_identifier(names.RUN_ENV, value.get(names.RUN_ENV, "")),
        attempt=_identifier(names.ATTEMPT_ENV, value.get(names.ATTEMPT_ENV, "")),
        node=_identifier(names.NODE, value.get(names.NODE, "")),
        socket=_socket(value.get(names.SOCKET)),
        steps_file=Path(value[names.STEPS_FILE]).absolute() if names.STEPS_FILE in value else None,
        continuous=_flag(names.CONTINUOUS, value.get(names.CONTINUOUS)),
        stop_after=_either(names.REPLICA_STOP, get(names.REPLICA_STOP, "before"), ("before", "after")) == "after",
        cap_seconds=_number(names.CAP_SECONDS, value.get(names.CAP_SECONDS), DEFAULT_CAP_SECONDS),
        cap_bytes=_size(names.CAP_BYTES, value.get(names.CAP_BYTES), DEFAULT_CAP_BYTES),
        cap_memory=_size(names.CAP_MEMORY, value.get(names.CAP_MEMORY), DEFAULT_CAP_MEMORY),
        boundary_seconds=_boundary(value.get(names.BOUNDARY_SECONDS)),
        disk_budget=_size(names.DISK_BUDGET, value.get(names.DISK_BUDGET), DEFAULT_DISK_BUDGET),
        keep_seconds=_kept(names.KEEP_SECONDS, value.get(names.KEEP_SECONDS), _number),
        keep_bytes=_kept(names.KEEP_BYTES, value.get(names.KEEP_BYTES), _size),
        request_spans=_size(names.REQUEST_SPANS, value.get(names.REQUEST_SPANS), DEFAULT_REQUEST_SPANS),
        otlp_http=_address(names.OTLP_HTTP, get(names.OTLP_HTTP, "127.0.0.1:0")),
        otlp_grpc=None
        if get(names.OTLP_GRPC, "").lower() == "off"
        else _address(names.OTLP_GRPC, get(names.OTLP_GRPC, "127.0.0.1:0")),
        artifacts=_store_url(value.get(names.ARTIFACTS, "")),
        token_file=Path(value[names.TOKEN_FILE]) if names.TOKEN_FILE in value else None,
        trace_view=_page_url(
            names.TRACE_VIEW, value.get(names.TRACE_VIEW, ""), "http://127.0.0.1:16686/trace/{trace_id}"
        ),
        viewer=_page_url(names.VIEWER, value.get(names.VIEWER, ""), "https://ui.perfetto.dev"),
        http_servers=_http_servers(value),
    )


def _check_names(env: Mapping[str, str]) -> None:
    for name in env:
        # STEPSCOPE_TEST_* steers the project's own test suite.
        if name.startswith("STEPSCOPE_") and name not in names.ENVIRONMENT and not name.startswith("STEPSCOPE_TEST_"):
            near = difflib.get_close_matches(name, names.ENVIRONMENT, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names.ENVIRONMENT)}"
            raise ConfigurationError(f"{name} is no setting of stepscope; {hint}")


def _said(name: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ConfigurationError as error:
        raise type(error)(f"{name}: {error}") from None


def _tools(text: str) -> dict[str, str]:
    tools = by_role(text, what="tool")
    for tool in tools.values():
        if REGISTERED_TOOL.fullmatch(tool):
            continue
        if tool not in KNOWN_TOOLS:
            usable = ", ".join(sorted(KNOWN_TOOLS - NOT_DRIVEN.keys()))
            raise ConfigurationError(
                f"tool {masked(tool)!r} is unknown; known are {usable}, and x-NAME for one you register"
            )
        if tool in NOT_DRIVEN:
            raise ConfigurationError(f"tool {masked(tool)!r} cannot be used: {NOT_DRIVEN[tool]}")
    return tools


def _http_servers(value: Mapping[str, str]) -> servers.Servers | None:
    if names.HTTP_PROFILER_URL not in value:
        for name in OF_SERVERS & value.keys():
            raise ConfigurationError(f"{name} is set without {names.HTTP_PROFILER_URL}: name the server it is about")
        return None
    token_file = value.get(names.HTTP_PROFILER_TOKEN_FILE)
    return _said(
        names.HTTP_PROFILER_URL,
        lambda: servers.parse(
            value[names.HTTP_PROFILER_URL],
            kind=value.get(names.HTTP_PROFILER_KIND, servers.Kind.VLLM).lower(),
            folder=value.get(names.HTTP_PROFILER_DIR, ""),
            any_host=_flag(names.HTTP_PROFILER_ANY_HOST, value.get(names.HTTP_PROFILER_ANY_HOST)),
            token_file=Path(token_file) if token_file else None,
        ),
    )


def _identifier(name: str, text: str) -> str:
    if text and not RUN_PATTERN.fullmatch(text):
        raise ConfigurationError(f"{name}={masked(text)!r}: use up to 64 letters, digits, '.', '_' and '-', no slash")
    return text


def _flag(name: str, text: str | None) -> bool:
    if text is None or text.lower() in {"0", "false", "no", "off"}:
        return False
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    raise ConfigurationError(f"{name}={masked(text)!r} is neither 1 nor 0")


def _either(name: str, text: str, values: tuple[str, ...]) -> str:
    if text.lower() not in values:
        raise ConfigurationError(f"{name}={masked(text)!r} is none of {', '.join(values)}")
    return text.lower()


def _number(name: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        raise ConfigurationError(f"{name}={masked(text)!r} is not a number") from None
    if not 0 <= number < float("inf"):
        raise ConfigurationError(f"{name}={masked(text)!r} must be a finite number of at least 0")
    return number


def _boundary(text: str | None) -> float:
    seconds = _number(names.BOUNDARY_SECONDS, text, DEFAULT_BOUNDARY_SECONDS)
    if not 0 < seconds <= MAX_BOUNDARY_SECONDS:
        raise ConfigurationError(
            f"{names.BOUNDARY_SECONDS}={seconds:g} is not above 0 and at most {MAX_BOUNDARY_SECONDS:g}: a step waits so"
            " long where the sidecar does not answer"
        )
    return seconds


def _ratio(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        ratio = _number(name, text, 0.0)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; 0.05 is 5%") from None
    # Nobody means 500% who writes 5, and a budget that is never reached would not be noticed.
    if ratio > 1:
        raise ConfigurationError(f"{name}={masked(text)!r} is a ratio, of at most 1; 0.05 is 5%")
    return ratio


def _kept(name: str, text: str | None, parse: Callable[[str, str, int], T]) -> T | None:
    if text is None:
        return None
    # Who writes 0 may mean that there is no limit, and would lose all there is.
    if text.startswith("-") or not parse(name, text, 0):
        raise ConfigurationError(f"{name}={masked(text)!r} would keep nothing; leave it unset to keep all")
    return parse(name, text, 0)


def _size(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    match = re.fullmatch(r"(\d{1,15})\s*([KMGT]?)i?B?", text, re.IGNORECASE)
    if not match:
        raise ConfigurationError(f"{name}={masked(text)!r} is not a whole number; 500M and 2G are understood too")
    return int(match[1]) * int(1024 ** " KMGT".index(match[2].upper() or " "))


def _address(name: str, text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator:
        host, port = ("127.0.0.1", text) if text.isdigit() else (text, "0")
    if not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535 or set("/@") & set(host):
        raise ConfigurationError(
            f"{name}={masked(text)!r} is not HOST:PORT; for example 127.0.0.1:8321, port 0 takes a free one"
        )
    return (host.strip("[]") or "127.0.0.1", int(port))


def _store_url(text: str) -> str:
    if text and not STORE_URL.fullmatch(text):
        raise ConfigurationError(
            f"{names.ARTIFACTS} is not an address such as s3://bucket/runs or file:///shared/runs; user, password and"
            " options belong into the store's own configuration"
        )
    return text.rstrip("/")


def _page_url(name: str, text: str, example: str) -> str:
    part = "{trace_id}" if "{trace_id}" in example else ""
    if text and not (PAGE_URL.fullmatch(text) and part in text):
        lacks = f" with {part} in it" if part else ""
        raise ConfigurationError(f"{name}={masked(text)!r} is no address of a page{lacks}, such as {example}")
    return text


def _socket(text: str | None) -> Path | None:
    if text is None:
        return None
    if len(os.fsencode(text)) > MAX_SOCKET_PATH:
        raise ConfigurationError(
            f"{names.SOCKET}={masked(text)!r} is longer than the {MAX_SOCKET_PATH} bytes of a socket path"
        )
    return Path(text)
