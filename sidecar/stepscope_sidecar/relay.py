"""
Bytes of another machine on their way through this one: checked as they pass, and ended whatever becomes of the answer.

Owns the check: the last piece goes out only once the SHA-256 of the whole is right. Where bytes come from, and which
hash is the right one, is ``remote``'s.
"""

import hashlib
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send


class Relayed(StreamingResponse):
    """
    An answer that ends the fetch whatever becomes of itself.
    """

    def __init__(
        self,
        first: bytes,
        rest: AsyncIterator[bytes],
        *,
        over: Callable[[], None],
        headers: dict[str, str],
        media_type: str,
    ) -> None:
        """
        Send ``first`` and ``rest``; ``over`` is called once, at the end.
        """

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            async for piece in rest:
                yield piece

        super().__init__(pieces(), headers=headers, media_type=media_type)
        self._rest, self._over = rest, over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Send it.
        """
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()
            await end(self._rest)


async def verified(
    pieces: AsyncIterator[bytes], *, sha256: str, limit: int, size: int | None = None
) -> AsyncIterator[bytes]:
    """
    ``pieces``, each a step late: the last one comes only if all were what they should be.

    Raises:
        OSError: they are more than ``limit``, not ``size`` where that is known, or not those of ``sha256``.
    """
    digest, seen, held = hashlib.sha256(), 0, b""
    try:
        async for piece in pieces:
            digest.update(piece)
            seen += len(piece)
            if seen > limit:
                raise OSError("it is longer than was reported")
            if held:
                yield held
            held = piece
        if size not in {None, seen} or digest.hexdigest() != sha256:
            raise OSError("its SHA-256 is not the one that was reported")
        yield held
    finally:
        await end(pieces)


async def whole(pieces: AsyncIterator[bytes], *, limit: int) -> bytes:
    """
    All of ``pieces`` at once.

    Raises:
        OSError: they are more than ``limit``.
    """
    found = bytearray()
    try:
        async for piece in pieces:
            found += piece
            if len(found) > limit:
                raise OSError(f"longer than {limit} bytes")
    finally:
        await end(pieces)
    return bytes(found)


async def end(pieces: AsyncIterator[bytes]) -> None:
    """
    Have the iterator give back what it holds.
    """
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()
