"""
The HTTP side of the sidecar: answers, orders, and what it refuses.
"""

import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from stepscope_sidecar.api import MAX_BODY
from stepscope_sidecar.downloads import find_artifact
from stepscope_sidecar.reader import open_reader
from tests.unit.sidecar.calling import DATA, FOLDER, Caller, FakeController, calling


def test_the_page_and_the_probes_answer(caller: Caller) -> None:
    """
    A browser, an orchestrator and Prometheus each get what they came for.
    """
    page = caller.get("/")

    assert (200, "text/html; charset=utf-8") == (page.status_code, page.headers["content-type"])
    assert "step 5 (weights v4 in force, makes v5)" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "nosniff" == page.headers["x-content-type-options"]
    assert "ok\n" == caller.get("/healthz").text
    metrics = caller.get("/metrics")
    assert ("stepscope_up 1\n", "text/plain; version=0.0.4") == (metrics.text, metrics.headers["content-type"])


def test_json_of_status_windows_spans_and_steps(caller: Caller, directory: Path) -> None:
    """
    Windows are what the command line prints; a step can be asked for.
    """
    windows = caller.get("/api/windows").json()

    assert [5, 6, 7, 8, 9, 10] == [row["step"] for row in windows]
    assert str(directory / FOLDER / "recording.json.gz") == windows[0]["artifact"]
    assert [6] == [row["step"] for row in caller.get("/api/windows?step=6").json()]
    assert "demo" == caller.get("/api/status").json()["run"]
    assert [] == caller.get("/api/spans?step=5").json()
    steps = caller.get("/api/steps").json()
    assert [(5, "1 ready", "unknown"), (6, "1 denied", "")] == [
        (row["step"], row["recorded"], row["overhead"]) for row in steps[:2]
    ]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/windows?step=x", 400), ("/api/spans?step=-1", 400), ("/api/spans?limit=1e9", 400), ("/nothing", 404)],
)
def test_a_wrong_request_is_answered_with_a_message(caller: Caller, path: str, status: int) -> None:
    """
    Errors are JSON with a message, never a stack trace.
    """
    answer = caller.get(path)

    assert status == answer.status_code
    assert answer.json()["error"]


def test_without_a_store_the_answer_says_so(tmp_path: Path, live: FakeController) -> None:
    """
    A store that cannot be read is the server's trouble, with its reason.
    """
    answer = calling(tmp_path, live).get("/api/windows")

    assert 503 == answer.status_code
    assert "no store" in answer.json()["error"]


def test_orders_reach_the_controller(caller: Caller, live: FakeController) -> None:
    """
    A new selection and a stop are passed on, and what came of them is answered.
    """
    changed = caller.post("/api/profile", json={"steps": "5,8-9"})
    stopped = caller.post("/api/stop", json={})

    assert ["5,8-9", "stop"] == live.orders
    assert {"selection": "5,8-9", "revision": 2} == changed.json()
    assert {"windows_open": 1} == stopped.json()


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"steps": "5-"}', "application/json", 400),
        (b'{"steps": 5}', "application/json", 400),
        (b"{}", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"steps": "5"}', "text/plain", 415),
        (b'{"steps": "5"}', "application/x-www-form-urlencoded", 415),
        (b" " * (MAX_BODY + 1), "application/json", 413),
    ],
)
def test_a_wrong_order_changes_nothing(
    caller: Caller, live: FakeController, body: bytes, kind: str, status: int
) -> None:
    """
    Bad grammar, a wrong type, too much, or a form that a foreign page could send: refused with a message.
    """
    answer = caller.post("/api/profile", content=body, headers={"content-type": kind})

    assert status == answer.status_code
    assert answer.json()["error"]
    assert [] == live.orders


def test_an_order_is_not_given_by_reading(caller: Caller, live: FakeController) -> None:
    """
    GET changes nothing.
    """
    assert [405, 405] == [caller.get(path).status_code for path in ("/api/profile", "/api/stop")]
    assert [] == live.orders


def test_an_artifact_is_sent_as_it_is(caller: Caller) -> None:
    """
    Its bytes are those that were hashed, under a name that says what it is.
    """
    answer = caller.get(f"/artifacts/{FOLDER}/recording.json.gz")

    assert hashlib.sha256(DATA).hexdigest() == hashlib.sha256(answer.content).hexdigest()
    assert "application/octet-stream" == answer.headers["content-type"]
    assert "content-encoding" not in answer.headers
    assert 'attachment; filename="step-5-trainer-0-recording.json.gz"' == answer.headers["content-disposition"]


def test_a_part_of_an_artifact_can_be_asked_for(caller: Caller) -> None:
    """
    A download that broke off goes on where it was.
    """
    path = f"/artifacts/{FOLDER}/recording.json.gz"
    part = caller.get(path, headers={"range": "bytes=10-19"})
    beyond = caller.get(path, headers={"range": f"bytes={len(DATA)}-"})

    assert (206, DATA[10:20], f"bytes 10-19/{len(DATA)}") == (
        part.status_code,
        part.content,
        part.headers["content-range"],
    )
    assert 416 == beyond.status_code


def test_a_file_in_an_artifact_that_is_a_folder(caller: Caller) -> None:
    """
    Some profilers leave a folder: its page lists its files, which can be had one by one; links in it cannot.
    """
    folder = "/artifacts/demo-a1/step-000009/folder"
    page = caller.get(folder)

    assert (200, "application/json") == (
        (answer := caller.get(f"{folder}/rank0.json")).status_code,
        answer.headers["content-type"],
    )
    assert (200, "text/html; charset=utf-8") == (page.status_code, page.headers["content-type"])
    assert ["folder/rank0.json"] == re.findall(r'href="([^"]*)"', page.text)
    assert [404, 404, 404] == [caller.get(f"{folder}{rest}").status_code for rest in ("/", "/out", "/out/secret")]


def test_no_file_of_a_recording_is_a_page_of_ours(caller: Caller, directory: Path) -> None:
    """
    What a profiler or a program has written is saved, never shown, and runs nothing: whatever its name and content.
    """
    inside = directory / "demo-a1" / "step-000009" / "folder"
    inside.with_name("folder.sha256").write_text("list")
    names = ("a.html", "b.svg", "c.js", "d.xml", "e.txt", "f.db", "g", "h.xhtml", "rank0.json")
    for name in names:
        (inside / name).write_text("<script>alert(1)</script>")
    kinds = set()
    for path in (*(f"folder/{name}" for name in names), "folder.sha256", "folder/none"):
        answer = caller.get(f"/artifacts/demo-a1/step-000009/{path}")
        policy = "sandbox; default-src 'none'"
        assert (policy, "nosniff") == tuple(
            answer.headers[header] for header in ("content-security-policy", "x-content-type-options")
        )
        if answer.status_code == 200:
            assert answer.headers["content-disposition"].startswith("attachment")
            kinds.add(answer.headers["content-type"])
    assert {"application/json", "application/octet-stream"} == kinds
    (inside / "<b>.json").write_text("")
    page = caller.get("/artifacts/demo-a1/step-000009/folder")
    assert page.headers["content-security-policy"].startswith("sandbox allow-downloads; default-src 'none'")
    assert "<b>" not in page.text
    assert "form-action 'none'" in caller.get("/").headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "demo-a1/stepscope.db",
        f"{FOLDER}/closed.json",
        f"{FOLDER}/",
        f"{FOLDER}/recording.json.gz/",
        f"{FOLDER}//recording.json.gz",
        f"{FOLDER}/%2e/recording.json.gz",
        f"demo-a1/%2e%2e/{FOLDER}/recording.json.gz",
        f"{FOLDER}/%2e%2e/torch/recording.json.gz",
        f"{FOLDER}/..%2ftorch/recording.json.gz",
        f"{FOLDER}/recording.json.gz%00",
        "demo-a1/step-000007/link.json.gz",
        "demo-a1/step-000008/gone.json.gz",
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "",
        "x" * 5000,
    ],
)
def test_no_other_file_leaves(caller: Caller, path: str) -> None:
    """
    Not the store, not the close record, nothing by a detour, by a link or outside the directory.
    """
    answer = caller.get(f"/artifacts/{path}")

    assert answer.status_code in {404, 307}
    assert b"secret" not in answer.content
    assert DATA != answer.content or answer.url.path == f"/artifacts/{FOLDER}/recording.json.gz"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "", "secret", "demo-a1", "step-000009", "folder", "out", "\0", "~"]) | st.text(),
        max_size=7,
    )
)
def test_no_path_leads_outside(directory: Path, parts: list[str]) -> None:
    """
    Whatever is asked for, as it is after decoding, there is no answer but "no such artifact".
    """
    with (
        open_reader(directory / "demo-a1" / "stepscope.db") as reader,
        pytest.raises(HTTPException, match="no such artifact"),
    ):
        find_artifact(reader, "/".join(parts), directory=directory)
