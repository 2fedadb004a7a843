"""
The inference servers whose own profiler the tool ``http`` drives: their addresses, and where they leave their traces.

Owns what an address may be: this machine, unless somebody says otherwise, because a start by mistake slows a server
that others use. Leaves talking to a server to :mod:`stepscope.profilers`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from stepscope import names
from stepscope.errors import ConfigurationError
from stepscope.hosts import is_loopback
from stepscope.masking import masked

DEFAULT_PORTS = {"http": 80, "https": 443}

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
"""What a folder's name may leave open, for servers that each have their own."""


class Kind(StrEnum):
    """
    Whose profiler it is.
    """

    VLLM = "vllm"
    VLLM_UNNAMED = "vllm-unnamed"
    """A vLLM too old to take a name for its traces: every new one in its folder is taken to be the window's."""
    SGLANG = "sglang"


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """
    One server. Make it with :func:`server`, which checks it.

    ``folder`` is where its traces land, as this process sees it; SGLang is told where, by default the window's folder.
    """

    host: str
    port: int
    path: str = ""
    tls: bool = False
    kind: Kind = Kind.VLLM
    folder: Path | None = None
    token_file: Path | None = None

    @property
    def url(self) -> str:
        """
        Its base address.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Servers:
    """
    Those of a run. Of one role's addresses the first is rank 0's, the second rank 1's, and so on; "" is every role.
    """

    addresses: Mapping[str, tuple[str, ...]]
    kind: str = Kind.VLLM
    folder: str = ""
    any_host: bool = False
    token_file: Path | None = None

    def of(self, *, role: str, rank: int) -> Server | None:
        """
        The server of a process; ``None`` if it has none.
        """
        addresses = self.addresses.get(role) or self.addresses.get("", ())
        if rank >= len(addresses):
            return None
        folder = self.folder.replace("{role}", role).replace("{rank}", str(rank))
        return server(
            addresses[rank],
            kind=self.kind,
            folder=folder or None,
            any_host=self.any_host,
            token_file=self.token_file,
        )

    def every(self) -> list[Server]:
        """
        All of them.
        """
        numbered = [(role, rank) for role, addresses in self.addresses.items() for rank in range(len(addresses))]
        return [found for role, rank in numbered if (found := self.of(role=role, rank=rank)) is not None]


def server(
    url: str,
    *,
    kind: str = Kind.VLLM,
    folder: str | Path | None = None,
    any_host: bool = False,
    token_file: str | Path | None = None,
) -> Server:
    """
    The server at ``url``, its base address.

    Raises:
        ConfigurationError: it cannot be used; the message says why.
    """
    if kind not in set(Kind):
        raise ConfigurationError(f"a server of kind {masked(kind)!r} is unknown; kinds are {', '.join(Kind)}")
    if kind != Kind.SGLANG and not folder:
        raise ConfigurationError(
            f"a vLLM server does not say where its traces are: give the torch_profiler_dir it was started with "
            f"({names.HTTP_PROFILER_DIR}, or folder=)"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigurationError(f"{masked(url)!r} is no address of a server: {masked(str(error))}") from None
    # An address becomes part of a request: nothing in it may end a line, and a password does not belong there.
    plain = url.isascii() and url.isprintable() and " " not in url
    if not plain or parts.scheme not in DEFAULT_PORTS or not host or parts.query or parts.fragment or "@" in url:
        raise ConfigurationError(f"{masked(url)!r} is no address of a server; for example http://127.0.0.1:8000")
    if not any_host and not is_loopback(host):
        raise ConfigurationError(
            f"{masked(url)!r} is another machine: set {names.HTTP_PROFILER_ANY_HOST}=1 (or any_host=True) to allow that"
        )
    return Server(
        host=host,
        port=port or DEFAULT_PORTS[parts.scheme],
        path=parts.path.rstrip("/"),
        tls=parts.scheme == "https",
        kind=Kind(kind),
        folder=Path(folder).expanduser().absolute() if folder else None,
        token_file=Path(token_file).expanduser() if token_file else None,
    )


def parse(
    text: str, *, kind: str = Kind.VLLM, folder: str = "", any_host: bool = False, token_file: Path | None = None
) -> Servers:
    """
    The servers in ``text``: ``URL`` or ``ROLE=URL``, comma-separated, in the order of their ranks.

    Raises:
        ConfigurationError: a part of it, or of what goes with it, cannot be used.
    """
    unknown = set(PLACEHOLDER.findall(folder)) - {"role", "rank"}
    if unknown:
        raise ConfigurationError(f"{folder!r}: {{{unknown.pop()}}} is unknown; a folder may hold {{role}} and {{rank}}")
    addresses: dict[str, list[str]] = {}
    for part in (part.strip() for part in text.split(",")):
        role, _, url = part.rpartition("=") if "=" in part.partition("://")[0] else ("", "", part)
        addresses.setdefault(role.strip(), []).append(url.strip())
    found = Servers(
        addresses={role: tuple(urls) for role, urls in addresses.items()},
        kind=kind,
        folder=folder,
        any_host=any_host,
        token_file=token_file,
    )
    # Made once so that what is wrong with one shows now.
    found.every()
    return found
