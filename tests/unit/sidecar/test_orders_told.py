"""
What is said of an order that has been given.
"""

import pytest

from stepscope_sidecar.commands import orders


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 open windows were"), (1, "1 open window was"), (2, "2 open windows were")]
)
def test_windows_that_are_told_to_close_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int, said: str
) -> None:
    """
    One is no plural.
    """
    monkeypatch.setattr(orders, "attempt_folder", lambda *_: None)
    monkeypatch.setattr(orders, "call", lambda *_: {"windows_open": number, "nodes": []})

    orders.stop()

    assert capsys.readouterr().out.startswith(f"stopped; {said} told to close\n")
