"""
The token of a sidecar: read from its file, and shown by everything of ours that calls one.
"""

from stepscope import names
from stepscope.errors import ConfigurationError
from stepscope.hosts import is_loopback
from stepscope.settings import Settings


def read_token(settings: Settings) -> str:
    """
    What the token's file holds; "" where none is set.

    Raises:
        ConfigurationError: it cannot be read, or is empty.
    """
    if settings.token_file is None:
        return ""
    try:
        token = settings.token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConfigurationError(f"{names.TOKEN_FILE}={settings.token_file}: {reason}") from None
    if not token:
        raise ConfigurationError(f"{names.TOKEN_FILE}={settings.token_file} is empty")
    return token


def headers(settings: Settings) -> dict[str, str]:
    """
    What a request to a sidecar carries.

    Raises:
        ConfigurationError: the token cannot be read.
    """
    token = read_token(settings)
    return {"Authorization": f"Bearer {token}"} if token else {}


def demanded(settings: Settings) -> str:
    """
    The token, without which nothing but loopback may be bound.

    Raises:
        ConfigurationError: it is missing, or cannot be read.
    """
    token = read_token(settings)
    addresses = {names.HTTP: settings.http, names.OTLP_HTTP: settings.otlp_http}
    if settings.otlp_grpc is not None:
        addresses[names.OTLP_GRPC] = settings.otlp_grpc
    for setting, (host, _) in addresses.items():
        if not is_loopback(host) and not token:
            raise ConfigurationError(
                f"{setting}: {host} is open to other machines; set {names.TOKEN_FILE}, or use 127.0.0.1"
            )
    return token
