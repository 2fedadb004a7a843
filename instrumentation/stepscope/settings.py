"""
The ``STEPSCOPE_*`` environment, read once at start and checked whole.

Owns defaults and validation for both ends: the instrumentation has no dependency that could do it, and the sidecar
must read the same names alike. A bad value or an unknown name is an error here, never later.
"""

import difflib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from stepscope import names
from stepscope.errors import ConfigurationError
from stepscope.selection import Ranks, Selection, by_role

KNOWN_TOOLS = frozenset({"torch"})
"""Profilers that this release can drive."""

LEVELS = frozenset(level.value for level in names.Level)

RUN_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Run and attempt are parts of folder names and of a socket path, which must stay under 107 characters."""

MAX_SOCKET_PATH = 107
"""The kernel's limit on the path of a unix socket, in bytes."""

T = TypeVar("T")

DEFAULT_CAP_SECONDS = 120.0
"""A step of minutes is recorded whole; a profiler forgotten in a step of hours is not."""

DEFAULT_CAP_BYTES = 2 * 1024**3
"""About ten times the recording of a busy step at level `ops`; beyond it no viewer opens the file."""

DEFAULT_CAP_MEMORY = 8 * 1024**3
"""Profilers keep events in memory until they stop; public reports of 512 GiB buffers ended in the OOM killer."""

DEFAULT_DISK_BUDGET = 50 * 1024**3
"""Recordings of one run on one node; small against a node's scratch disk."""

DEFAULT_REQUEST_SPANS = 2000
"""A step's trace stays under Tempo's default limit of 5 MB at about 310 bytes a span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """
    Everything that the environment can say. ``tools`` and ``levels`` map a role to a value; "" is the default.
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
    socket: Path | None = None
    cap_seconds: float = DEFAULT_CAP_SECONDS
    cap_bytes: int = DEFAULT_CAP_BYTES
    cap_memory: int = DEFAULT_CAP_MEMORY
    disk_budget: int = DEFAULT_DISK_BUDGET
    request_spans: int = DEFAULT_REQUEST_SPANS
    otlp_http: tuple[str, int] = ("127.0.0.1", 0)
    otlp_grpc: tuple[str, int] | None = ("127.0.0.1", 0)
    token_file: Path | None = None

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
        return self.directory.absolute() / f"{self.run}-{self.attempt}"

    @property
    def socket_path(self) -> Path:
        """
        The control socket of this user's sidecar for this attempt on this node.
        """
        return self.socket or socket_folder() / f"{self.attempt}.sock"


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
        raise ConfigurationError(f"{names.LEVEL_ENV}={level!r} is unknown; levels are {', '.join(names.Level)}")
    return Settings(
        selection=_said(names.STEPS, lambda: Selection.parse(get(names.STEPS, ""))),
        tools=_said(names.TOOLS, lambda: by_role(get(names.TOOLS, "torch"), what="tool", allowed=KNOWN_TOOLS)),
        level=level,
        ranks=_said(names.RANKS, lambda: Ranks.parse(get(names.RANKS, "0"))),
        directory=Path(get(names.DIR, "runs")),
        max_overhead=_ratio(names.MAX_OVERHEAD, value.get(names.MAX_OVERHEAD)),
        http=_address(names.HTTP, get(names.HTTP, "127.0.0.1:0")),
        disabled=_flag(names.DISABLED, value.get(names.DISABLED)),
        run=_identifier(names.RUN_ENV, value.get(names.RUN_ENV, "")),
        attempt=_identifier(names.ATTEMPT_ENV, value.get(names.ATTEMPT_ENV, "")),
        socket=_socket(value.get(names.SOCKET)),
        cap_seconds=_number(names.CAP_SECONDS, value.get(names.CAP_SECONDS), DEFAULT_CAP_SECONDS),
        cap_bytes=_size(names.CAP_BYTES, value.get(names.CAP_BYTES), DEFAULT_CAP_BYTES),
        cap_memory=_size(names.CAP_MEMORY, value.get(names.CAP_MEMORY), DEFAULT_CAP_MEMORY),
        disk_budget=_size(names.DISK_BUDGET, value.get(names.DISK_BUDGET), DEFAULT_DISK_BUDGET),
        request_spans=_size(names.REQUEST_SPANS, value.get(names.REQUEST_SPANS), DEFAULT_REQUEST_SPANS),
        otlp_http=_address(names.OTLP_HTTP, get(names.OTLP_HTTP, "127.0.0.1:0")),
        otlp_grpc=None
        if get(names.OTLP_GRPC, "").lower() == "off"
        else _address(names.OTLP_GRPC, get(names.OTLP_GRPC, "127.0.0.1:0")),
        token_file=Path(value[names.TOKEN_FILE]) if names.TOKEN_FILE in value else None,
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


def _identifier(name: str, text: str) -> str:
    if text and not RUN_PATTERN.fullmatch(text):
        raise ConfigurationError(f"{name}={text!r}: use up to 64 letters, digits, '.', '_' and '-', no slash")
    return text


def _flag(name: str, text: str | None) -> bool:
    if text is None or text.lower() in {"0", "false", "no", "off"}:
        return False
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    raise ConfigurationError(f"{name}={text!r} is neither 1 nor 0")


def _number(name: str, text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        raise ConfigurationError(f"{name}={text!r} is not a number") from None
    if not 0 <= number < float("inf"):
        raise ConfigurationError(f"{name}={text!r} must be a finite number of at least 0")
    return number


def _ratio(name: str, text: str | None) -> float | None:
    return None if text is None else _number(name, text, 0.0)


def _size(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)i?B?", text, re.IGNORECASE)
    if not match:
        raise ConfigurationError(f"{name}={text!r} is not a whole number; 500M and 2G are understood too")
    return int(match[1]) * int(1024 ** " KMGT".index(match[2].upper() or " "))


def _address(name: str, text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator:
        host, port = ("127.0.0.1", text) if text.isdigit() else (text, "0")
    if not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(
            f"{name}={text!r} is not HOST:PORT; for example 127.0.0.1:8321, port 0 takes a free one"
        )
    return (host.strip("[]") or "127.0.0.1", int(port))


def _socket(text: str | None) -> Path | None:
    if text is None:
        return None
    if len(os.fsencode(text)) > MAX_SOCKET_PATH:
        raise ConfigurationError(f"{names.SOCKET}={text!r} is longer than the {MAX_SOCKET_PATH} bytes of a socket path")
    return Path(text)
