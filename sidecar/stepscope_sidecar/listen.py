"""
Listening sockets of the sidecar: the address that was set, the former one after a restart, or a free port.
"""

import ipaddress
import socket

from stepscope.errors import ConfigurationError

BACKLOG = 128
"""Connections that may wait to be accepted: all processes of a large node at once."""


def tcp(setting: str, address: tuple[str, int], *, former: int = 0) -> socket.socket:
    """
    A socket that listens at ``address``; with port 0 at port ``former`` if that is free, else at any.

    Raises:
        ConfigurationError: the address cannot be had; the message names ``setting``.
    """
    host, port = address
    for candidate in [port] if port or not former else [former, 0]:
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                host, candidate, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
        except OSError as error:
            raise ConfigurationError(f"{setting}={host}:{port}: {error.strerror or error}") from None
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if candidate != former or port:
                reason = error.strerror or error
                raise ConfigurationError(
                    f"{setting}={host}:{port}: {reason}; name another port, or port 0 for a free one"
                ) from None
            continue
        listener.setblocking(False)
        return listener
    raise ConfigurationError(f"{setting}={host}:{port}: no port is free")


def shown(listener: socket.socket) -> str:
    """
    ``host:port`` of a listener, as another process of this machine can reach it.
    """
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
