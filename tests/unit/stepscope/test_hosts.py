"""
Which addresses are this machine.
"""

import pytest

from stepscope.hosts import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("example.org", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    """
    Only an address, or the name that means one.
    """
    assert expected is is_loopback(host)
