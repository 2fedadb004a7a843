"""
The page of a run.
"""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope_sidecar.pages import run_page
from stepscope_sidecar.steptable import table
from tests.unit.sidecar.test_steptable import cost, estimate, sample, span, window

VOID = {"meta", "br"}


class Page(HTMLParser):
    """
    Reads a page: its text, its tags, and whether they nest.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def words(self) -> str:
        return " ".join(" ".join(self.text).split())

    def links(self) -> list[str]:
        return [attributes["href"] or "" for tag, attributes in self.tags if tag == "a"]


STATUS: dict[str, object] = {
    "run": "demo",
    "attempt": "20261129-a1",
    "node": "node-1",
    "param_version": 5,
    "selection": "5,8-9",
    "stopped": False,
    "processes": 4,
    "expected": {"trainer": [0, 1]},
    "missing": {"trainer": [1]},
}


def page(status: dict[str, object] | None = None, **changes: Any) -> str:
    """
    A page with a bit of everything.
    """
    artifact = "demo-a/step-000005/trainer-0-7/torch/recording.json.gz"
    windows = [
        window(5, artifact=artifact, bytes=2048, sha256="ab" * 32, complete=True, reason="boundary", trace_id="c" * 32),
        window(6, "denied", reason="rank_not_selected", rank=1),
        window(
            8,
            artifact=artifact,
            complete=False,
            incomplete_reason="markers_missing",
            incomplete_share=0.25,
            level_fallback="spans",
        ),
        window(9, "failed", reason="artifact_invalid", detail="truncated <here>"),
    ]
    spans = [span("rl.step.process", step, seconds=1.25) for step in (4, 5)]
    values: dict[str, Any] = {
        "steps": table(
            spans, windows=windows, samples=[sample(5, 3, 3)], estimates={"trainer": estimate(cost(5, 0.031))}
        ),
        "windows": windows,
        "estimates": {"trainer": estimate(), "rollouter": estimate(ratio=None, why="1 unprofiled steps, 3 are needed")},
        **changes,
    }
    return run_page(STATUS if status is None else status, **values)


def test_the_page_shows_the_run_its_steps_windows_and_cost() -> None:
    """
    Everything a person needs is on one page.
    """
    found = Page(page())

    words = found.words()
    assert [] == found.open
    for wanted in (
        "demo 20261129-a1",
        "weights v5, step 6",
        "5,8-9",
        "node-1",
        "step 5 (weights v4 in force, makes v5)",
        "1.25",
        "+3.1%",
        "rank_not_selected",
        "artifact_invalid",
        "truncated <here>",
        "no: markers_missing (25%)",
        "(not spans)",
        "2.0 KiB",
        "missing ranks trainer: 1",
        "unknown (1 unprofiled steps, 3 are needed)",
        "+10.0% of productive time, unknown of wall time",
    ):
        assert wanted in words
    assert "Stopped" not in words


def test_recordings_can_be_downloaded_by_a_relative_link() -> None:
    """
    The page works behind a proxy that puts it below a path.
    """
    links = Page(page()).links()

    assert "artifacts/demo-a/step-000005/trainer-0-7/torch/recording.json.gz" in links
    assert not [link for link in links if link.startswith(("/", "http"))]


def test_a_stopped_run_says_so() -> None:
    """
    Nothing is silently off.
    """
    found = Page(page({**STATUS, "stopped": True, "stopped_by": "api"}))

    assert "Stopped: nothing is recorded until stepscope profile --steps" in found.words()
    assert "`" not in found.words()
    assert "code" in [tag for tag, _ in found.tags]


def test_a_file_that_stops_the_run_is_named() -> None:
    """
    It may have been left by an earlier run, and stops later ones.
    """
    words = Page(page({**STATUS, "stopped": True, "stopped_by": "file /runs/STOP"})).words()

    assert "Stopped by the file /runs/STOP" in words
    assert "remove the file, or later runs are stopped too" in words


@pytest.mark.parametrize(
    ("status", "windows", "state"),
    [
        ({"processes": 2}, [], "running"),
        ({"processes": [{"alive": True}]}, [], "running"),
        ({"processes": {"trainer": 1}}, [], "running"),
        ({"processes": []}, [], "no process yet"),
        ({"processes": 0}, [], "ended"),
        ({"processes": [{"alive": False}]}, [], "ended"),
        ({"processes": 0}, [window(5, "finalising")], "finishing"),
        ({"processes": [{"alive": False}], "windows_unfinished": 1}, [], "finishing"),
        ({}, [window(5)], "ended"),
    ],
)
def test_the_page_loads_itself_again_until_the_run_is_over(
    status: dict[str, object], windows: list[Any], state: str
) -> None:
    """
    It says how far the run is; a page of a run that has ended stays as it is.
    """
    found = Page(page(status, windows=windows))

    assert f"state {state} " in found.words()
    assert (state != "ended") == any(attributes.get("http-equiv") == "refresh" for _, attributes in found.tags)


def test_staleness_is_blank_where_no_sample_was_told_of() -> None:
    """
    Unknown is what a sample's version is, not what nobody speaks of.
    """
    told = table([span("rl.step.process", 4)], samples=[sample(4, None, None)])
    silent = table([span("rl.step.process", 4)])
    cells = [
        re.findall(r'<td data-label="staleness"[^>]*>(.*?)</td>', page(steps=steps, windows=[]))
        for steps in (told, silent)
    ]

    assert [["1 unknown"], [""]] == cells


def test_on_a_narrow_screen_the_steps_come_last() -> None:
    """
    There each step takes a screen's height, and what a person looks for is a recording.
    """
    text = page()
    narrow = text.partition("max-width: 50rem")[2]

    assert ".steps { order: 1; }" in narrow
    assert '<section class="steps">' in text


def test_an_empty_run_has_a_page() -> None:
    """
    Before the first step there is something to read.
    """
    words = Page(page({}, steps=[], windows=[], estimates={})).words()

    assert "No step has ended yet." in words
    assert "No window was asked for." in words
    assert "unknown: no step has been profiled yet" in words


def test_nothing_is_loaded_from_anywhere() -> None:
    """
    No script, no image, no style sheet, no address of another machine; both colour schemes; made for phones too.
    """
    text = page()
    found = Page(text)

    assert not {"script", "img", "link", "iframe", "form"} & {tag for tag, _ in found.tags}
    assert not re.search(r"url\(|@import|https?://|src=", text)
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text
    assert all(attributes.get("data-label") for tag, attributes in found.tags if tag == "td")


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=8, max_size=8))
def test_whatever_a_run_calls_itself_stays_text(words: list[str]) -> None:
    """
    Names from outside cannot become tags or attributes.
    """
    plain = Page(page())
    hostile = [f'"><script>{word}' for word in words]
    run, node, selection, detail, role, tool, artifact, why = hostile

    found = Page(
        page(
            {**STATUS, "run": run, "node": node, "selection": selection, "missing": {role: [tool]}},
            windows=[window(5, role=role, tool=tool, detail=detail, artifact=artifact, sha256=artifact, trace_id=run)],
            estimates={role: estimate(ratio=None, why=why)},
        )
    )

    assert {tag for tag, _ in found.tags} <= {tag for tag, _ in plain.tags}
    assert {name for _, attributes in found.tags for name in attributes} <= {
        name for _, attributes in plain.tags for name in attributes
    }
    assert all(word in "".join(found.text) for word in (run, node, selection, detail, role, tool, why))
