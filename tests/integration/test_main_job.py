"""
The main job, whole: trainers and rollouters on Ray, chosen steps recorded, linked and measured.
"""

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from stepscope import names
from stepscope_sidecar.show import shown
from tests import trace_format
from tests.integration.collector import Collector, collected
from tests.integration.jobs import Job, command_line, run_job

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STEPS = 9
SELECTED = (5, 8, 9)
PROCESSES = [("rollouter", 0), ("rollouter", 1), ("trainer", 0), ("trainer", 1)]
MARKER = re.compile(r"(.+) #([0-9a-f]{16})")
CLOCK_SLACK_NS = 1_000_000
"""A recording's clock and the spans' agree to within a millisecond on one machine."""


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector | None]:
    """
    A collector that is not ours, with a receiver of ours behind it; ``None`` where it is not installed.
    """
    with collected(tmp_path_factory.mktemp("collector")) as found:
        yield found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, collector: Collector | None) -> Job:
    """
    Two trainer ranks and two rollouters, every rank recorded at level ops.
    """
    return run_job(
        tmp_path_factory.mktemp("whole"),
        "--checkpoint-every",
        "4",
        "--checkpoints",
        str(tmp_path_factory.mktemp("checkpoints")),
        "--steps",
        str(STEPS),
        "--trainer-ranks",
        "2",
        "--rollouters",
        "2",
        "--validate-every",
        "2",
        STEPSCOPE_STEPS="5,8-9",
        STEPSCOPE_RANKS="all",
        STEPSCOPE_LEVEL="ops",
        # Without a collector: an empty value is no upstream.
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint if collector else "",
    )


def artifact(window: dict[str, Any]) -> dict[str, Any]:
    """
    The recording of ``window``.
    """
    found: dict[str, Any] = json.loads(gzip.decompress(Path(window["artifact"]).read_bytes()))
    return found


def test_every_process_records_each_selected_step_once(whole: Job) -> None:
    """
    There is one ready window per process and selected step, named for its step and the version in force.
    """
    expected = sorted((step, role, rank) for step in SELECTED for role, rank in PROCESSES)

    assert 0 == whole.code, whole.errors
    assert expected == sorted((window["step"], window["role"], window["rank"]) for window in whole.windows)
    assert {"ready": 12} == whole.states()
    assert all(window["param_version"] == window["step"] - 1 for window in whole.windows)
    assert all(window["level"] == "ops" and window["tool"] == "torch" for window in whole.windows)
    assert all(window["complete"] is True for window in whole.windows)


def test_windows_print_what_a_program_needs(whole: Job) -> None:
    """
    Each window's JSON has the promised keys with usable values.
    """
    span_ids = {span["span_id"]: span for span in whole.named("rl.step.process")}

    for window in whole.windows:
        opener = span_ids[window["span_id"]]
        assert window["trace_id"] == opener["trace_id"]
        assert window["opened_unix_ns"] <= opener["start_unix_ns"]
        assert opener["end_unix_ns"] <= window["closed_unix_ns"]
        assert window["bytes"] == Path(window["artifact"]).stat().st_size
        assert {"open", "start", "stop", "export"} <= set(window["stall_seconds"])
        assert isinstance(window["pid"], int)
        assert window["version_at_close"] in {window["step"] - 1, window["step"]}


def test_recordings_hold_the_spans_of_their_window_and_no_more(whole: Job) -> None:
    """
    A span begun in the window is on its timeline; one begun in another step only with its part, marked continued.
    """
    by_process: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for span in whole.spans:
        if not span["name"].startswith("profile.") and span["name"] != "rl.step":
            by_process[span["attributes"]["rl.role"], span["attributes"]["rl.rank"]].append(span)

    for window in whole.windows:
        trace = artifact(window)
        base = trace["baseTimeNanoseconds"]
        markers = {}
        for event in trace["traceEvents"]:
            match = MARKER.fullmatch(str(event.get("name", "")))
            if match and event.get("ph") == "X":
                start = base + round(event["ts"] * 1000)
                markers[match[2]] = (match[1], start, start + round(event["dur"] * 1000), event.get("args", {}))
        spans = {span["span_id"]: span for span in by_process[window["role"], window["rank"]]}
        begun = {
            span_id
            for span_id, span in spans.items()
            if window["opened_unix_ns"] <= span["start_unix_ns"] < window["closed_unix_ns"]
            and span["name"] != "rl.step.process"
        }
        assert begun <= set(markers), [spans[span_id]["name"] for span_id in begun - set(markers)]
        for span_id, (name, start, end, args) in markers.items():
            assert window["opened_unix_ns"] - CLOCK_SLACK_NS <= start
            assert end <= window["closed_unix_ns"] + CLOCK_SLACK_NS
            span = spans[span_id]
            assert name == span["name"]
            if span["start_unix_ns"] < window["opened_unix_ns"]:
                assert args.get("stepscope.continued") in {True, "true"}
        assert trace["stepscope.step"] == str(window["step"]) or trace["stepscope.step"] == window["step"]
        assert trace["stepscope.trace_id"] == window["trace_id"]
        assert trace["stepscope.span_id"] == window["span_id"]


def operator_time(trace: dict[str, Any]) -> int:
    """
    Nanoseconds in which any operator ran, added up over threads; counted by hand.
    """
    threads: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event.get("cat") == "cpu_op" and event.get("ph") == "X":
            start = round(event["ts"] * 1000)
            threads[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    total = 0
    for intervals in threads.values():
        reached = 0
        for start, end in sorted(intervals):
            total += max(0, end - max(start, reached))
            reached = max(reached, end)
    return total


def test_recordings_and_spans_tell_the_same_times(whole: Job) -> None:
    """
    What `stepscope show` reads of a span in a recording is the span's own part in the window to within a millisecond,
    in the median; operators' time, by span and in none, adds up to all of it to the nanosecond.

    A span has the time at which its mark was begun or ended, read by a thread that may lose its core in between: how
    many do so is the machine's. What began before the window begins with it, exactly.
    """
    store = whole.directory.resolve() / "latest" / "stepscope.db"
    spans = {span["span_id"]: span for span in whole.spans}
    shifts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    before = []
    for window in whole.windows:
        (summary,) = shown(store.resolve(), window["window"]).summaries
        assert operator_time(artifact(window)) == summary.operator_ns > 0
        assert summary.operator_ns == summary.unattributed_operator_ns + sum(one.operator_ns for one in summary.spans)
        assert any(one.operator_ns for one in summary.spans)
        for one in summary.spans:
            span = spans[one.span_id]
            begin = max(span["start_unix_ns"], window["opened_unix_ns"])
            end = min(span["end_unix_ns"], window["closed_unix_ns"])
            shift = (one.start_ns - begin, one.start_ns + one.duration_ns - end)
            shifts[window["role"]].append(shift)
            before += [shift[0]] * (span["start_unix_ns"] < window["opened_unix_ns"])
    for found in shifts.values():
        assert len(found) > 20
        for apart in ([abs(start) for start, _ in found], [abs(end) for _, end in found]):
            assert median(apart) < CLOCK_SLACK_NS, sorted(found)
    assert {0} == set(before)


def test_a_step_is_one_timeline(whole: Job, tmp_path: Path) -> None:
    """
    `stepscope merge`: all spans and all events of all processes, each at its own time, and an arrow for each sample.
    """
    step, target = SELECTED[0], tmp_path / "step.json.gz"
    told = command_line(whole.directory, "merge", "--step", str(step), "-o", str(target))
    timeline = trace_format.read(target)
    spans = {span["span_id"]: span for span in whole.spans}
    drawn = {one.args["span_id"]: one for one in timeline.slices if one.category == "span"}
    mine = {key for key, span in spans.items() if span["attributes"].get("rl.step") == step}
    trained = [span for key, span in spans.items() if key in mine and span["name"] == "train.update_actor"]
    links = {(link["span_id"], span["span_id"]) for span in trained for link in span["links"]}

    assert 4 == len(timeline.processes) == told.count("recording   ")
    assert mine <= drawn.keys()
    assert all(spans[key]["start_unix_ns"] == timeline.unix_ns(one.start) for key, one in drawn.items())
    assert all(spans[key]["end_unix_ns"] == timeline.unix_ns(one.end) for key, one in drawn.items())
    assert links == {(one.args["span_id"], other.args["span_id"]) for _, one, other in timeline.flows}
    assert links
    shifts = []
    for window in whole.windows:
        if window["step"] == step:
            process = f"{window['role']} {window['rank']} (pid {window['pid']})"
            recorded = [event for event in artifact(window)["traceEvents"] if event["ph"] == "X"]
            recorded = [event for event in recorded if event.get("cat") != "Trace"]
            assert len(recorded) == len(timeline.of(process)) - len(timeline.of(process, category="span"))
            for one in timeline.of(process, category="user_annotation"):
                mark = MARKER.fullmatch(one.name)
                if mark and not one.args.get("stepscope.continued"):
                    shifts.append(abs(timeline.unix_ns(one.start) - spans[mark[2]]["start_unix_ns"]))
    assert median(shifts) < CLOCK_SLACK_NS
    assert not timeline.of("", "missing")


def check_traces(spans: list[dict[str, Any]], *, windows: list[dict[str, Any]]) -> None:
    """
    One trace per step, with the right parents, versions and links.
    """
    by_id = {span["span_id"]: span for span in spans}
    assert len(by_id) == len(spans)
    roots = {span["attributes"]["rl.step"]: span for span in spans if span["name"] == "rl.step"}
    for step in range(1, STEPS + 1):
        root = roots[step]
        mine = [span for span in spans if span["attributes"].get("rl.step") == step]
        assert root["parent_span_id"] == ""
        assert root["attributes"]["param_version"] == step - 1
        assert {root["trace_id"]} == {span["trace_id"] for span in mine if span["name"] not in {"rollout.generate"}}
        processes = [span for span in mine if span["name"] == "rl.step.process"]
        assert sorted((span["attributes"]["rl.role"], span["attributes"]["rl.rank"]) for span in processes) == PROCESSES
        assert {root["span_id"]} == {span["parent_span_id"] for span in processes}
        for span in mine:
            assert {"param_version", "rl.step", "rl.role", "rl.rank"} <= set(span["attributes"])
            if span["name"] in {"train.update_actor", "train.wait_samples", "weights.publish"}:
                opener = by_id[span["parent_span_id"]]
                while opener["name"] != "rl.step.process":
                    opener = by_id[opener["parent_span_id"]]
                assert opener["attributes"]["rl.rank"] == span["attributes"]["rl.rank"]
    generated = [span for span in spans if span["name"] == "rollout.generate"]
    assert any("param_version.end" in span["attributes"] for span in generated)
    assert all(
        span["attributes"]["param_version.end"] > span["attributes"]["param_version"]
        for span in generated
        if "param_version.end" in span["attributes"]
    )
    trained = [span for span in spans if span["name"] == "train.update_actor"]
    linked = [by_id[link["span_id"]] for span in trained for link in span["links"] if link["span_id"] in by_id]
    assert trained
    assert linked
    assert {"rollout.generate"} == {span["name"] for span in linked}
    captures = {span["attributes"]["profile.window.id"]: span for span in spans if span["name"] == "profile.capture"}
    assert {window["window"] for window in windows} == set(captures)
    for window in windows:
        capture = captures[window["window"]]
        opener = by_id[capture["parent_span_id"]]
        assert opener["name"] == "rl.step.process"
        assert opener["span_id"] == window["span_id"]
        assert opener["attributes"]["rl.step"] == window["step"]
        assert capture["attributes"]["profile.artifact.sha256"] == window["sha256"]
        assert capture["attributes"]["profile.artifact.uri"].startswith("stepscope:")
        assert window["artifact"].endswith(capture["attributes"]["profile.artifact.uri"].removeprefix("stepscope:"))


def test_one_trace_per_step(whole: Job) -> None:
    """
    In our own store: one trace per step over all processes.
    """
    check_traces(whole.spans, windows=whole.windows)


@pytest.mark.rotel
def test_one_trace_per_step_behind_a_foreign_collector(whole: Job, collector: Collector | None) -> None:
    """
    The same holds of the spans that went through a collector that is not ours.
    """
    if collector is None:
        pytest.skip("STEPSCOPE_TEST_ROTEL does not name the rotel executable")
    found = collector.spans(at_least=len(whole.spans))

    assert {span["span_id"] for span in whole.spans} == {span["span_id"] for span in found}
    check_traces(found, windows=whole.windows)


def test_checkpoint_and_validation_belong_to_the_step_after_the_update(whole: Job) -> None:
    """
    Validation after update v carries version v and step v+1, in the trace of that step, outside every window.
    """
    roots = {span["attributes"]["rl.step"]: span["span_id"] for span in whole.named("rl.step")}
    validations = whole.named("validate")

    assert validations
    for span in validations:
        assert span["attributes"]["rl.step"] == span["attributes"]["param_version"] + 1
        if span["attributes"]["rl.step"] in roots:
            assert span["parent_span_id"] == roots[span["attributes"]["rl.step"]]
        for window in whole.windows:
            same = (window["role"], window["rank"]) == (span["attributes"]["rl.role"], span["attributes"]["rl.rank"])
            apart = span["end_unix_ns"] <= window["opened_unix_ns"] or window["closed_unix_ns"] <= span["start_unix_ns"]
            assert not same or apart


SPAN_NAMES = {
    "rl.step",
    "rl.step.process",
    "train.wait_samples",
    "train.log_prob",
    "train.update_actor",
    "weights.publish",
    "weights.wait",
    "weights.load",
    "rollout.generate",
    "rollout.pause",
    "rollout.wait",
    "validate",
    "checkpoint.save",
    "profile.opened",
    "profile.capture",
}
NOT_IN_A_HEALTHY_RUN = {
    "rl.requests.untraced",
    "rl.resumed_from",
    "profile.incomplete.reason",
    "profile.level_fallback",
    "profile.last_step",
    "rl.tracker.wandb",
    "rl.tracker.mlflow",
    "rl.tracker.trackio",
}
"""More requests than the budget, a resume, an incomplete recording, a level that had to be replaced, a shared one; no
tracker of experiments is active here."""


def test_what_is_emitted_is_registered_and_what_is_registered_is_emitted(whole: Job) -> None:
    """
    The registry of names and what a run emits are the same, in both directions.
    """
    emitted = {span["name"] for span in whole.spans}
    attributes = {key for span in whole.spans for key in (*span["attributes"], *span["resource"])}
    standard = {key for key in attributes if key.startswith(("service.", "telemetry.", "process.", "host."))}

    assert SPAN_NAMES == emitted
    assert SPAN_NAMES == {str(name) for name in names.SPANS}
    assert {str(name) for name in names.ATTRIBUTES} == attributes - standard | NOT_IN_A_HEALTHY_RUN
    assert not attributes & NOT_IN_A_HEALTHY_RUN


def test_safe_defaults_record_rank_0_and_list_the_others(tmp_path: Path) -> None:
    """
    With the defaults, rank 0 of each role is recorded and every other rank is listed as denied, with the reason.
    """
    job = run_job(
        tmp_path,
        "--steps",
        str(STEPS),
        "--trainer-ranks",
        "2",
        "--rollouters",
        "2",
        "--mini-batches-per-step",
        "1",
        STEPSCOPE_STEPS="5,8-9",
    )
    ready = [window for window in job.windows if window["state"] == "ready"]
    denied = [window for window in job.windows if window["state"] == "denied"]

    assert 0 == job.code, job.errors
    assert 6 == len(ready)
    assert {"spans"} == {window["level"] for window in ready}
    assert {0} == {window["rank"] for window in ready}
    assert 6 == len(denied)
    assert {"rank_not_selected"} == {window["reason"] for window in denied}
    assert {1} == {window["rank"] for window in denied}
