"""
Who may call the sidecar over HTTP: loopback names only, or whoever knows the token.

Owns the checks that come before any route, and the headers that go with every answer.
"""

import base64
import binascii
import hmac
import ipaddress
from urllib.parse import urlsplit

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = frozenset({"/healthz"})
"""Says nothing about the run; an orchestrator's probe carries no token."""

POLICY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "cache-control": "no-store",
}
"""Pages load nothing from anywhere and lie in nobody's frame."""


class Gate:
    """
    ASGI middleware: refuses what may not come in.
    """

    def __init__(self, app: ASGIApp, *, token: str = "") -> None:
        """
        Guard ``app``. With a ``token`` every caller has to show it, under whatever host name.
        """
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Pass the request on, or answer it here.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in POLICY.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        refusal = self._refusal(scope["path"], headers)
        await (refusal or self._app)(scope, receive, with_policy)

    def _refusal(self, path: str, headers: Headers) -> Response | None:
        if self._token:
            if path not in OPEN_PATHS and not self._knows_token(headers.get("authorization", "")):
                challenge = {"www-authenticate": 'Basic realm="stepscope", charset="UTF-8"'}
                return _error("this sidecar demands its token", 401, challenge)
        elif not is_loopback(headers.get("host", "")):
            # A foreign site whose name resolves to this machine would come with its own name.
            return _error("this sidecar answers under loopback names only, such as 127.0.0.1", 403)
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return _error("another site's page may not call this sidecar", 403)
        return None

    def _knows_token(self, authorization: str) -> bool:
        scheme, _, credentials = authorization.partition(" ")
        told = credentials.strip().encode()
        if scheme.lower() == "basic":
            # For browsers: any user name, the token as the password.
            try:
                told = base64.b64decode(told, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(told, self._token)


def is_loopback(host: str) -> bool:
    """
    Whether ``host``, as in a Host header, names this machine and nothing else.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _error(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps({"error": message}), status, headers, media_type="application/json")
