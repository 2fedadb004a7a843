"""
Paths of this machine in text that leaves it.
"""

import pytest

from stepscope.paths import without_folders


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (
            "[Errno 28] No space left on device: '/data/someone/runs/x.json'",
            "[Errno 28] No space left on device: '…/x.json'",
        ),
        ("no trace in /data/someone/torch", "no trace in …/torch"),
        ("STEPSCOPE_STEPS_FILE=/etc/someone/steps: not text", "STEPSCOPE_STEPS_FILE=…/steps: not text"),
        ("file:///data/someone/x and file://here/data/x", "file:…/x and file:…/x"),
        (
            "nobody answers at http://127.0.0.1:8000/v1/start_profile",
            "nobody answers at http://127.0.0.1:8000/v1/start_profile",
        ),
        ("url=https://a.example/b/c, in /data/someone/d", "url=https://a.example/b/c, in …/d"),
        ("0.5 s of 2 s", "0.5 s of 2 s"),
        ("", ""),
    ],
)
def test_a_path_keeps_its_last_name(said: str, left: str) -> None:
    """
    That tells a person what is meant, and nobody else where it lies; addresses are no paths.
    """
    assert left == without_folders(said)
