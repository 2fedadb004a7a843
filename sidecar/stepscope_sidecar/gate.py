"""
Who may call the sidecar over HTTP: loopback names only, or whoever knows the token.

Owns the checks that come before any route, and the headers that go with every answer.
"""

import base64
import binascii
import hmac
import re
from urllib.parse import urlsplit

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stepscope import hosts, names
from stepscope_sidecar import addressee

TOKEN_DEMANDED = f"this sidecar demands its token: set {names.TOKEN_FILE} to the file that holds it"

OPEN_PATHS = frozenset({"/healthz"})
"""Says nothing about the run; an orchestrator's probe carries no token."""

POLICY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cache-control": "no-store",
}
"""Pages load what this sidecar serves and nothing else, run no script in them, and lie in nobody's frame."""

FILES = re.compile(r"(/nodes/[^/]*)?/artifacts/")
"""Where what profilers have written is served from, this node's and others'."""

SANDBOX = "sandbox; default-src 'none'"
"""For a file: whatever it is, and however it came to be shown, it is no page of ours and runs nothing."""

LISTING = (
    "sandbox allow-downloads; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none';"
    " form-action 'none'"
)
"""For our own page of a recording that is a folder, whose names others have chosen; its links are downloads."""


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
                if FILES.match(scope["path"]):
                    headers.setdefault("content-security-policy", SANDBOX)
                    headers.setdefault("cross-origin-resource-policy", "same-origin")
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
                return _error(TOKEN_DEMANDED, 401, challenge)
        elif not is_loopback(headers.get("host", "")):
            # A foreign site whose name resolves to this machine would come with its own name.
            return _error("this sidecar answers under loopback names only, such as 127.0.0.1", 403)
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != headers.get("host", ""):
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


class Addressed:
    """
    ASGI middleware: refuses what says that it is for the sidecar of another run. Such a request comes from whoever has
    an address that was that sidecar's once.
    """

    def __init__(self, app: ASGIApp, *, run: str, sidecar: bool = True) -> None:
        """
        Let pass to ``app`` what is for the sidecar of ``run``; nothing, where this is none, but serves its store.
        """
        self._app = app
        self._run = run
        self._sidecar = sidecar

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Pass the request on, or answer it here.
        """
        wanted = Headers(scope=scope).get(addressee.HEADER) if scope["type"] == "http" else None
        if wanted is None or (self._sidecar and wanted == addressee.mark(self._run)):
            await self._app(scope, receive, send)
            return
        is_here = f"the sidecar of {self._run}" if self._sidecar else f"a server of the store of {self._run}"
        await _error(f"this is {is_here}", 421)(scope, receive, send)


def is_loopback(host: str) -> bool:
    """
    Whether ``host``, as in a Host header, names this machine and nothing else.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name.endswith(".localhost") or hosts.is_loopback(name)


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _error(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps({"error": message}), status, headers, media_type="application/json")
