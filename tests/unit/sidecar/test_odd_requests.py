"""
Requests that nobody's program makes: each is answered, and none is an error of ours.
"""

from itertools import product
from pathlib import Path

import pytest

from stepscope_sidecar.serve import application
from tests.unit.sidecar.calling import FOLDER, Caller, attempt

LONG = "9" * 5000
ODD = ("", "0", "-1", "1e9", "٣", "999999999999999", str(2**63), LONG, "x" * 300, "%00", "..%2f..", "%ff", "[", "😀")
"""Where a number, an id or a name is expected."""

PATHS = (
    *("/steps/{}", "/steps/{}/timeline.json.gz", "/windows/{}", "/traces/{}", "/runs/{}/", "/runs/demo-a1/steps/{}"),
    *("/static/{}", "/artifacts/{}", "/nodes/{}/artifacts/x", "/api/traces/{}", "/api/services/{}/operations"),
    *("/artifacts/demo-a1/step-{}/x", "/?before={}", "/api/windows?step={}", "/api/missing?step={}"),
    *("/api/spans?step={}", "/api/spans?limit={}", "/api/steps?last={}", "/api/operations?service={}"),
    *("/api/dependencies?endTs={}", "/api/dependencies?lookback={}", "/api/dependencies?endTs=1&lookback={}"),
    *("/api/traces?service=s&start={}", "/api/traces?service=s&end={}", "/api/traces?service=s&limit={}"),
    *("/api/traces?service=s&lookback={}h", "/api/traces?service=s&minDuration={}s", "/api/traces?traceID={}"),
    *("/api/traces?service=s&tag=rl.step:{}", '/api/traces?service=s&tags={{"rl.step":{}}}'),
    *("/api/v3/trace-summaries?query.serviceName=s&query.startTimeMin={}", "/api/v3/operations?service={}"),
)

HEADERS = {
    "origin": ("http://[", "http://[::1", "//", "http://127.0.0.1:99999999"),
    "host": ("[", "[::1", "127.0.0.1:" + LONG, ""),
    "accept": (
        *(f"application/openmetrics-text; version={version}" for version in ("abc", "1", "9.9", "1..0", LONG)),
        *(f"text/plain; version={version}" for version in ("x.y", "", "1.0.0;escaping=what", "٣", LONG)),
        *(";", ",", "text/html;q=" + LONG),
    ),
    "authorization": ("Basic ==", "Bearer", "é"),
    "range": ("bytes=5-2", f"bytes={LONG}-", "bytes=-", "bytes=a-b", "bytes=0-0,1-1,-1", "bits=1-2", "bytes=-0"),
    "if-range": ("x",),
    "if-none-match": ('"x', "*"),
    "content-type": ("application/json;", ";"),
    "content-length": ("0",),
}


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    """
    Calls a run that has ended, as `stepscope serve` serves it.
    """
    store = attempt(tmp_path) / "demo-a1" / "stepscope.db"
    return Caller(application(store, token=""), host="127.0.0.1:8321")


def ours(caller: Caller, method: str, path: str, headers: dict[str, str]) -> str:
    """
    What went wrong, if anything did.
    """
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    try:
        status = caller.request(method, path, headers=sent).status_code
    except Exception as error:  # noqa: BLE001 - whatever the application raises is an answer 500
        return f"{method} {path[:80]} {str(headers)[:80]}: {type(error).__name__}: {str(error)[:80]}"
    return "" if status < 500 or status == 503 else f"{method} {path[:80]}: {status}"


@pytest.mark.parametrize(("method", "places"), [("GET", ODD), ("HEAD", (LONG, "7"))])
def test_an_odd_address_is_no_error_of_ours(caller: Caller, method: str, places: tuple[str, ...]) -> None:
    """
    Whatever stands in the place of a number, an id or a name.
    """
    found = [ours(caller, method, path.format(odd), {}) for path, odd in product(PATHS, places)]

    assert [] == list(filter(None, found))


def test_an_odd_header_is_no_error_of_ours(caller: Caller) -> None:
    """
    On the page, the metrics and a download.
    """
    paths = ("/", "/metrics", f"/artifacts/{FOLDER}/recording.json.gz", "/static/live.js", "/healthz")
    found = [
        ours(caller, "GET", path, {name: value})
        for path in paths
        for name, values in HEADERS.items()
        for value in values
    ]

    assert [] == list(filter(None, found))


def test_metrics_whose_version_cannot_be_read_come_in_the_oldest_form(caller: Caller) -> None:
    """
    As for a caller that names none.
    """
    kinds = [
        caller.get("/metrics", headers={"accept": accept}).headers["content-type"]
        for accept in ("", "application/openmetrics-text; version=abc", "text/plain; version=x.y")
    ]

    assert {"text/plain; version=0.0.4; charset=utf-8"} == set(kinds)


def test_asking_whether_a_timeline_is_there_makes_none(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A HEAD is answered from what is known of the step.
    """
    monkeypatch.setattr("stepscope_sidecar.digests.Digests.merge", None)

    assert [200, 404] == [caller.request("HEAD", f"/steps/{step}/timeline.json.gz").status_code for step in (5, 4711)]
