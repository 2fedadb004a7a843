"""
The page of a run.
"""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope_sidecar.lanes import Strip
from stepscope_sidecar.pages import Shown, run_page
from stepscope_sidecar.pages.html import STATIC
from stepscope_sidecar.pages.timeline import HEIGHT
from stepscope_sidecar.steptable import StepRow, table
from tests.unit.sidecar.stepped import cost, estimate, sample, span
from tests.unit.sidecar.stored import window

PLAIN = st.characters(exclude_categories=["Cs", "Cc", "Cf"])
"""What pages show as it is."""

VOID = {"meta", "br", "link", "path", "rect"}


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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

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
    "missing": {"trainer": [1]},
}


def _outside(text: str) -> str:
    """
    A page without its timeline, whose cells stay in their columns on narrow screens.
    """
    return re.sub(r'<table class="timeline">.*?</table>', "", text, flags=re.DOTALL)


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
    shown = Shown(steps=values.pop("steps"), windows=values.pop("windows"), newest=9, oldest=4)
    return run_page(STATUS if status is None else status, shown=shown, **values)


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
        "v4→v5",
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


def test_what_is_wrong_with_the_configuration_is_said_once() -> None:
    """
    A stop by a file has a note of its own.
    """
    by = "file /runs/STOP"
    warnings = [f"recording is stopped by the {by}: remove it", "STEPSCOPE_TOOLS names 'trianer' <&>"]
    words = Page(page({**STATUS, "stopped": True, "stopped_by": by, "warnings": warnings})).words()

    assert "Warning: STEPSCOPE_TOOLS names 'trianer' <&>." in words
    assert 1 == words.count(by)


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
    rows = [
        re.findall(r'<th scope="row">staleness</th><td><span>(.*?)</span></td>', page(steps=steps, windows=[]))
        for steps in (told, silent)
    ]

    assert [["unknown"], []] == rows


def test_the_timeline_says_in_words_what_it_draws() -> None:
    """
    A strip has its seconds by kind of time, a mark the state of its window, and both lead on.
    """
    lanes = {
        5: {("trainer", 0): Strip(seconds=1.25, over=True, painted={"idle": [(0, 60)]}, spent={"idle": 0.625})},
        6: {("trainer", 0): Strip(seconds=0.5, over=False)},
    }
    steps = table([span("rl.step.process", 5), span("rl.step.process", 6)])
    found = Page(run_page(STATUS, shown=Shown(steps=steps, lanes=lanes, windows=[window(5)]), estimates={}))

    assert "1.25 s: idle 625.0 ms" in found.words()
    assert "500.0 ms so far" in found.words()
    assert {"steps/5", "steps/6", "windows/w-5-ready"} <= set(found.links())
    assert ("path", {"class": "idle", "d": "M0 0h60v10h-60z"}) in found.tags


def _bars(*rewards: float) -> list[tuple[float, float]]:
    """
    From where to where the bars of rewards reach, counted from the ground up.
    """
    steps = [StepRow(step=step, version=step - 1, reward=reward) for step, reward in enumerate(rewards, start=1)]
    found = Page(run_page(STATUS, shown=Shown(steps=steps), estimates={})).tags
    bars = [attributes for tag, attributes in found if tag == "rect" and attributes["class"] == "value"]
    reach = [(float(bar["y"] or ""), float(bar["height"] or "")) for bar in bars]
    return [(HEIGHT - top - high, HEIGHT - top) for top, high in reach]


def test_a_reward_that_improves_is_a_rising_series() -> None:
    """
    Bars reach from 0 to their value: below the line where that is negative, all in one scale, and none is nothing.
    """
    assert [(0, 16), (8, 16), (14, 16), (16, 18), (16, 32)] == _bars(-1.0, -0.5, -0.1, 0.1, 1.0)
    assert [(0, 8), (0, 16), (0, 32)] == _bars(0.25, 0.5, 1.0)
    assert [(0, 32), (16, 32), (31, 32)] == _bars(-1.0, -0.5, 0.0)
    assert [(0, 1), (0, 1)] == _bars(0.0, 0.0)


def test_earlier_and_later_steps_are_a_click_away() -> None:
    """
    The page says which part of the run it shows.
    """
    steps = table([span("rl.step.process", step) for step in (40, 41)])
    found = Page(run_page(STATUS, shown=Shown(steps=steps, newest=90, oldest=1), estimates={}))

    assert "steps 40 to 41 of 1 to 90" in found.words()
    assert {"?before=40", "?before=44"} <= set(found.links())


def test_an_empty_run_has_a_page() -> None:
    """
    Before the first step there is something to read.
    """
    words = Page(page({}, steps=[], windows=[], estimates={})).words()

    assert "No step has ended yet." in words
    assert "No window was asked for in these steps." in words
    assert "unknown: no step has been profiled yet" in words


def test_nothing_is_loaded_from_anywhere() -> None:
    """
    No script but ours, no style but ours, no address of another machine; both colour schemes; made for phones too.
    """
    text = page()
    found = Page(text)

    loaded = [
        attributes.get("src") or attributes["href"] for tag, attributes in found.tags if tag in {"script", "link"}
    ]
    static = {path.name: path.read_text() for path in STATIC.iterdir()}
    assert not {"img", "iframe", "form", "style"} & {tag for tag, _ in found.tags}
    assert {"static/icon.svg", "static/stepscope.css", "static/live.js"} == set(loaded)
    assert not re.search(r"url\(|@import|https?://|<script>|style=| on[a-z]+=", text)
    assert not re.search(r"url\(|@import|https?://", static["stepscope.css"] + static["live.js"] + static["viewer.js"])
    assert "prefers-color-scheme: dark" in static["stepscope.css"]
    assert "width=device-width" in text
    assert all(attributes.get("data-label") for tag, attributes in Page(_outside(text)).tags if tag == "td")


@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.text(PLAIN, min_size=1), min_size=8, max_size=8))
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
