"""
One POST to a server on an event loop, with one deadline until its answer.

Owns HTTP/1.1 as far as that needs it, so that nothing has to be installed for it. Redirects are not followed: they are
answers like any other, and no request leaves for an address that nobody configured. Proxies are not used.
"""

import asyncio
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.errors import StepscopeError
from stepscope.profilers.sessions import UnansweredError
from stepscope.servers import Server

MAX_HEAD = 64 * 1024
"""Bytes of an answer's head; the usual limit of servers for a request's."""

MAX_DETAIL = 4096
"""Bytes read of what a refusal says; only a line of it is kept."""

DETAIL_DEADLINE = 1.0
"""Seconds for them: the status alone says enough."""

OK = 200
"""The first status that is an answer."""

KEPT = 200
"""Characters of a refusal that leave the process."""


class UnreachableError(StepscopeError):
    """
    Nobody answers at the address; the request was not sent.
    """


class CutOffError(UnansweredError):
    """
    The connection ended without an answer.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """
    A status, and what the server said where that is no success.
    """

    status: int
    detail: str = ""

    @property
    def ok(self) -> bool:
        """
        Whether it was done.
        """
        return OK <= self.status < 300


async def post(server: Server, path: str, body: Mapping[str, object], *, key: str = "", deadline: float) -> Answer:
    """
    The answer to ``body`` as JSON.

    Raises:
        UnreachableError: nothing was sent.
        CutOffError: the server went away.
        TimeoutError: no answer within ``deadline`` seconds.
    """
    try:
        async with asyncio.timeout(deadline) as limit:
            return await _exchange(server, _request(server, path, body, key), limit)
    except TimeoutError:
        raise TimeoutError(f"{server.url} has not answered within {deadline:g} s") from None


async def _exchange(server: Server, request: bytes, limit: asyncio.Timeout) -> Answer:
    try:
        reader, writer = await _connect(server)
    except OSError as error:
        raise UnreachableError(f"nobody answers at {server.url}: {error}") from error
    try:
        writer.write(request)
        await writer.drain()
        status = await _status(reader)
        # A refusal is one, also where what it says does not come in time: that has a deadline of its own.
        limit.reschedule(None)
        answer = Answer(status=status)
        return answer if answer.ok else Answer(status=status, detail=await _detail(reader))
    except (OSError, EOFError) as error:
        raise CutOffError(f"{server.url} went away: {str(error) or type(error).__name__}") from error
    finally:
        writer.close()


async def _connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = True if server.tls else None
    try:
        return await asyncio.open_connection(server.host, server.port, ssl=tls, limit=MAX_HEAD)
    except RuntimeError:
        # The process ends and starts no thread any more to look a name up; nobody else is kept waiting by it then.
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    name, refused = server.host if server.tls else None, OSError(f"{server.host} has no address")
    for *_, (address, *_) in found:
        try:
            return await asyncio.open_connection(
                str(address), server.port, ssl=tls, server_hostname=name, limit=MAX_HEAD
            )
        except OSError as error:
            refused = error
    raise refused


def _request(server: Server, path: str, body: Mapping[str, object], key: str) -> bytes:
    data = json.dumps(body).encode()
    host = server.url.partition("://")[2].removesuffix(server.path)
    lines = [
        f"POST {server.path}{path} HTTP/1.1",
        f"Host: {host}",
        "Connection: close",
        "Accept: */*",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *([f"Authorization: Bearer {key}"] if key else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def _status(reader: asyncio.StreamReader) -> int:
    """
    That of the answer; what comes before it, that somebody goes on for example, is none.
    """
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise CutOffError(f"an answer of more than {MAX_HEAD} bytes before its body") from error
        version, _, rest = head.decode("latin-1").partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise CutOffError("the answer is not HTTP")
        if (status := int(rest[:3])) >= OK:
            return status


async def _detail(reader: asyncio.StreamReader) -> str:
    """
    What a refusal says, as far as it comes at once.
    """
    said = b""
    try:
        async with asyncio.timeout(DETAIL_DEADLINE):
            while len(said) < MAX_DETAIL and (more := await reader.read(MAX_DETAIL - len(said))):
                said += more
    except (TimeoutError, OSError):
        pass
    text = said.decode(errors="replace")
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())[:KEPT]
