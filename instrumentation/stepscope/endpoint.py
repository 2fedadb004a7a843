"""
What ``OTEL_EXPORTER_OTLP_*`` says of who takes spans, checked whole at start: what could not be sent stops there.

Owns the values that can be used: endpoint, headers, timeout and certificate, each with its ``TRACES`` form first.
Leaves to ``poster`` and to the sidecar's ``upstream`` what they make of them.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stepscope.errors import ConfigurationError
from stepscope.masking import masked

PREFIX = "OTEL_EXPORTER_OTLP_"

TIMEOUT = 10.0
"""Seconds; what the OpenTelemetry specification says."""

SECONDS_BELOW = 100.0
"""The specification counts the timeout in milliseconds, Python's SDK in seconds; nobody means less than 0.1 s."""

EXAMPLE = "for example http://collector:4318 (OTLP over HTTP, not gRPC)"

TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""What HTTP lets a header be called."""

VALUE = re.compile(r"[\t\x20-\x7e]*")
"""What every HTTP client sends as a header's value."""


def check(environment: Mapping[str, str]) -> None:
    """
    Let pass what can be used, and an environment that names no endpoint.

    Raises:
        ConfigurationError: a value cannot be used.
    """
    if url(environment):
        headers(environment)
        seconds(environment)
        certificate(environment)


def get(environment: Mapping[str, str], name: str) -> str:
    """
    The setting ``name`` for traces.
    """
    return said(environment, name)[1]


def said(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """
    The variable that says ``name`` for traces, and its value; "" where none does.
    """
    for variable in (f"{PREFIX}TRACES_{name}", f"{PREFIX}{name}"):
        if value := environment.get(variable, "").strip():
            return variable, value
    return f"{PREFIX}{name}", ""


def url(environment: Mapping[str, str]) -> str:
    """
    Where spans go, as a whole URL; "" where none is named.

    Raises:
        ConfigurationError: it is none, or no machine can be called so.
    """
    variable, text = said(environment, "ENDPOINT")
    if not text:
        return ""
    wrong = _wrong(text)
    if wrong:
        raise ConfigurationError(f"{variable}={masked(text)!r}: {wrong}; {EXAMPLE}")
    return text if variable.startswith(f"{PREFIX}TRACES_") else f"{text.rstrip('/')}/v1/traces"


def headers(environment: Mapping[str, str]) -> dict[str, str]:
    """
    What every request carries. The messages name a header, never its value, which may be a secret.

    Raises:
        ConfigurationError: they are not KEY=VALUE, or cannot be sent over HTTP.
    """
    variable, text = said(environment, "HEADERS")
    found = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise ConfigurationError(f"{variable}: {key!r} is not KEY=VALUE; separate pairs by commas")
        key, value = unquote(key).strip().lower(), unquote(value).strip()
        if not TOKEN.fullmatch(key):
            raise ConfigurationError(f"{variable}: {key!r} is no name of a header; use letters, digits and '-'")
        if not VALUE.fullmatch(value):
            raise ConfigurationError(
                f"{variable}: the value of {key!r} holds characters that no HTTP header can; use printable ASCII"
            )
        found[key] = value
    return found


def seconds(environment: Mapping[str, str]) -> float:
    """
    How long one request may take.

    Raises:
        ConfigurationError: it is no time.
    """
    variable, text = said(environment, "TIMEOUT")
    if not text:
        return TIMEOUT
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise ConfigurationError(
            f"{variable}={text!r} is not a positive number of milliseconds; for example 10000, or leave it out"
        )
    return number if number < SECONDS_BELOW else number / 1000


def certificate(environment: Mapping[str, str]) -> str:
    """
    The file of certificates to trust; "" where it is not said.

    Raises:
        ConfigurationError: it cannot be read, or holds none.
    """
    variable, path = said(environment, "CERTIFICATE")
    if path and not Path(path).is_dir():
        # Not needed by whoever has no file to be read.
        import ssl

        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigurationError(f"{variable}={path!r}: {reason}; name a file of PEM certificates") from None
    return path


def _wrong(text: str) -> str:
    """
    Why ``text`` is no URL that can be called; "" where it is one.
    """
    if not text.isprintable() or " " in text:
        return "a URL holds no blanks or control characters"
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError as error:
        return f"not a URL ({error})"
    if parts.scheme not in {"http", "https"} or not host:
        return "not a URL with http:// or https:// and a host"
    try:
        host.encode("idna")
    except UnicodeError as error:
        return f"no machine can be called {host!r} ({error.__cause__ or error})"
    try:
        port = parts.port
    except ValueError:
        port = 0
    return "its port is no number from 1 to 65535" if port == 0 else ""
