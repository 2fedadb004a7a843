"""
The page of a window, opened in the browser.
"""

import threading
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.errors import StepscopeError
from stepscope_sidecar import serve as served
from stepscope_sidecar import standing
from stepscope_sidecar.commands import browse
from stepscope_sidecar.store import Store
from tests.unit.sidecar.stored import WAIT, put, window

URL = "http://127.0.0.1:9"


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """
    A run ``r-1`` with two windows, and the addresses that a browser is told.
    """
    monkeypatch.setenv("STEPSCOPE_DIR", str(tmp_path))
    (tmp_path / "r-1").mkdir()
    store = Store.open(tmp_path / "r-1" / "stepscope.db", run="r", attempt="1")
    try:
        put(store, window(3), window(4))
    finally:
        store.close()
    told: list[str] = []

    def browser(url: str) -> bool:
        told.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    return told


def soon(true: Callable[[], bool]) -> None:
    """
    Wait until ``true`` is.
    """
    never, deadline = threading.Event(), time.monotonic() + WAIT
    while not true() and time.monotonic() < deadline:
        never.wait(0.01)


def answers(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    """
    Have the status of the run be ``found``.
    """
    monkeypatch.setattr(standing, "status", lambda *_, **__: found)


def test_a_live_run_shows_its_own_page(
    opened: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    The beginning of an id is enough; the address is printed as well.
    """
    answers(monkeypatch, live=True, http=URL)

    browse.open_window("w-3", run="r-1", print_only=False)

    assert [f"{URL}/windows/w-3-ready"] == opened
    assert f"{URL}/windows/w-3-ready\n" == capsys.readouterr().out


def test_print_opens_no_browser(
    opened: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    For a machine without a browser, or a pipe.
    """
    answers(monkeypatch, live=True, http=URL)

    browse.open_window("w-4-ready", run="r-1", print_only=True)

    assert [] == opened
    assert f"{URL}/windows/w-4-ready\n" == capsys.readouterr().out


def test_a_run_that_has_ended_is_served(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    From its store, as ``stepscope serve`` does; the browser is told once the address is known.
    """

    def serve(store: Path, _: object, *, ready: Callable[[str], None]) -> None:
        assert store.is_file()
        ready("http://127.0.0.1:8")

    monkeypatch.setattr(served, "serve", serve)

    browse.open_window("w-3", run="r-1", print_only=False)
    soon(lambda: bool(opened))

    assert ["http://127.0.0.1:8/windows/w-3-ready"] == opened


def test_a_browser_of_the_terminal_is_served_while_it_is_there(
    opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Whoever opens it goes on at once, since the page that it waits for is to come from there.
    """
    served_it, done = threading.Event(), threading.Event()

    def browser(url: str) -> bool:
        opened.append(url)
        assert served_it.wait(WAIT)
        done.set()
        return True

    def serve(_: Path, __: object, *, ready: Callable[[str], None]) -> None:
        ready("http://127.0.0.1:8")
        served_it.set()

    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setattr(served, "serve", serve)

    browse.open_window("w-3", run="r-1", print_only=False)

    assert done.wait(WAIT)
    assert ["http://127.0.0.1:8/windows/w-3-ready"] == opened


@pytest.mark.parametrize(
    ("wanted", "words"),
    [("w-9", "no window 'w-9'"), ("w-", "beginning of 2 windows"), ("", "which window?")],
)
def test_an_error_says_what_is_wrong_with_the_name(opened: list[str], wanted: str, words: str) -> None:
    """
    Nothing is opened then.
    """
    with pytest.raises(StepscopeError, match=words):
        browse.open_window(wanted, run="r-1", print_only=False)

    assert [] == opened


def test_a_token_that_is_not_known_is_named(opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The page would refuse; how the token is given is said.
    """
    answers(monkeypatch, live=True, demands_token=True)

    with pytest.raises(StepscopeError, match="STEPSCOPE_TOKEN_FILE"):
        browse.open_window("w-3", run="r-1", print_only=False)
