"""
Who may call the HTTP side: this machine's pages and programs, and everybody who shows the token.
"""

import base64
from pathlib import Path

import pytest

from stepscope_sidecar.gate import is_loopback
from tests.unit.sidecar.calling import Caller, FakeController, calling

PAGES = (
    *("/static/live.js", "/api/pulse", "/runs", "/runs/demo-a1/", "/runs/demo-a1/api/windows", "/steps/5"),
    *("/steps/5/timeline.json.gz", "/windows/w-5-ready", f"/traces/{'1' * 32}"),
)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1:8321", True),
        ("127.0.0.1", True),
        ("127.9.9.9:1", True),
        ("localhost:8321", True),
        ("LOCALHOST", True),
        ("[::1]:8321", True),
        ("run.localhost:1", True),
        ("", False),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8321", False),
        ("10.0.0.1:8321", False),
        ("0.0.0.0:8321", False),
        ("[::]:8321", False),
        ("127.0.0.1@evil.example", False),
        ("[::1", False),
        ("2130706433", False),
    ],
)
def test_which_hosts_are_this_machine(host: str, loopback: bool) -> None:
    """
    Loopback addresses and names that cannot resolve elsewhere, nothing that merely looks like them.
    """
    assert loopback == is_loopback(host)


def test_another_host_name_is_refused(caller: Caller, live: FakeController) -> None:
    """
    A foreign name that resolves to this machine gets nothing, on any route.
    """
    for method, path in (
        *(("GET", path) for path in ("/", "/api/windows", "/healthz", *PAGES)),
        ("POST", "/api/stop"),
    ):
        answer = caller.request(method, path, json={}, headers={"host": "evil.example"})
        assert 403 == answer.status_code
        assert "loopback" in answer.json()["error"]
    assert [] == live.orders


def test_another_sites_page_is_refused(caller: Caller, live: FakeController) -> None:
    """
    A browser tells where a request comes from; only our own page may call.
    """
    own = caller.get("/api/status", headers={"origin": "http://127.0.0.1:8321"})
    foreign = [
        caller.post("/api/stop", json={}, headers={"origin": origin}).status_code
        for origin in ("https://evil.example", "null", "http://127.0.0.1:9999")
    ]

    assert 200 == own.status_code
    assert [403, 403, 403] == foreign
    assert [] == live.orders


def test_with_a_token_everybody_has_to_show_it(directory: Path, live: FakeController) -> None:
    """
    As a bearer token, or as a browser's password, under any host name; only the probe goes without.
    """
    basic = base64.b64encode(b"me:s3cret:with:colons").decode()
    caller = calling(directory, live, token="s3cret:with:colons", host="10.0.0.5:80")
    without = caller.get("/api/status")
    wrong = [
        caller.get("/", headers=[(b"authorization", text)]).status_code
        for text in (
            b"Bearer nope",
            b"Bearer",
            b"Basic !!",
            b"Basic bm9wZQ==",
            b"Digest s3cret:with:colons",
            b"Bearer \xe9",
        )
    ]
    right = [
        caller.get("/api/status", headers={"authorization": text}).status_code
        for text in ("Bearer s3cret:with:colons", f"Basic {basic}")
    ]
    probe = caller.get("/healthz")
    pages = [caller.get(path).status_code for path in PAGES]

    assert (401, True) == (without.status_code, without.headers["www-authenticate"].startswith("Basic"))
    assert {401} == set(wrong)
    assert {401} == set(pages)
    assert [200, 200] == right
    assert 200 == probe.status_code
