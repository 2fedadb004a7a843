"""
Which addresses are this machine and nothing else: what may be bound, asked and answered without a token.
"""

import ipaddress


def is_loopback(host: str) -> bool:
    """
    Whether ``host``, a name or an address without brackets or port, is this machine and nothing else.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
