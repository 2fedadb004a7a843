"""
Sidecars of several nodes and one upstream, as processes: what is listed there, fetched from there and ordered there.
"""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from stepscope import wire
from stepscope_sidecar.reader import open_reader
from tests.unit.sidecar.bodies import body, span

from .agent import Agent
from .collector import free_port
from .fleet import DEADLINE, Upstream, agent, below, fleet, node, shows, upstream
from .jobs import command_line, eventually
from .place import Place

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "en" / "nodes.md"
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_upstream_shows_all_nodes_and_its_orders_reach_them(tmp_path: Path) -> None:
    """
    Each node decides for itself; the page, the API and the command line upstream show all, with the node and its clock.
    Stop closes the open windows of all, profile has all of them record again.
    """
    with (
        upstream(tmp_path) as hub,
        fleet(tmp_path, hub, "n1", "n2") as places,
        agent(places["n1"]) as first,
        agent(places["n2"]) as second,
    ):
        grants = {"n1": first.open(5), "n2": second.open(5)}
        hub.waits(n1="recording", n2="recording")
        for name, process in (("n1", first), ("n2", second)):
            process.send(process.write(grants[name]))
        _lists_and_fetches(hub, grants)
        _obeys(hub, places, [first, second])
    # The upstream has ended; its store still tells.
    assert {"n1", "n2"} == {row["node"] for row in hub.printed() if row["state"] == "ready"}


def _lists_and_fetches(hub: Upstream, grants: Mapping[str, wire.Grant]) -> None:
    found = hub.waits(n1="ready", n2="ready")
    shows(lambda: len(hub.spans("profile.capture")) == 2 or None)
    nodes = shows(lambda: told if (told := hub.nodes()) and all(map(timed, told.values())) else None)

    for name, row in found.items():
        assert grants[name].window == row["window"]
        path = row["artifact"].removeprefix(f"stepscope://{name}/")
        answer = hub.get(f"/nodes/{name}/artifacts/{path}")
        assert b"aten::mm" in gzip.decompress(answer.content)
        assert len(answer.content) == row["bytes"]
        assert f'href="nodes/{name}/artifacts/{path}"' in hub.get("/").text
    assert {grant.window for grant in grants.values()} == set(hub.spans("profile.opened"))
    assert {"n1", "n2"} == nodes.keys()
    for row in nodes.values():
        # One machine has one clock.
        assert abs(row["clock_offset_seconds"]) <= row["clock_error_seconds"]
        assert ("present", {"ready": 1}) == (row["state"], row["windows"])
    assert ["n1", "n2"] == [row["node"] for row in hub.printed()]
    merged = command_line(hub.place.folder, "merge", "--step", "5", "-o", str(hub.place.folder / "step.json"))
    assert 2 == merged.count("recording   ")
    assert 2 == (hub.place.folder / "step.json").read_text().count('"aten::mm"')


def _obeys(hub: Upstream, places: Mapping[str, Place], processes: list[Agent]) -> None:
    grants = [process.open(8) for process in processes]
    printed = command_line(hub.place.folder, "stop")
    assert "for node hub now, within seconds for n1, n2;" in printed
    reached = {"order": "stop", "reached": ["n1", "n2"], "waiting": []}
    shows(lambda: hub.get("/api/status").json()["ordered"] == reached or None)
    for process, grant in zip(processes, grants, strict=True):
        told = [process.receive(), process.receive()]
        assert wire.Stop(window=grant.window, reason="stopped_by_user") in told
        assert wire.Selected(selection="5,8-9", revision=2, stopped=True, source="api") in told
        process.send(process.write(grant))
    assert "Last order: stop. Obeyed by n1, n2." in hub.get("/").text
    answered = hub.place.post("/api/profile", steps="12")
    assert ("hub", ["n1", "n2"]) == (answered["node"], answered["nodes"])
    shows(lambda: hub.get("/api/status").json()["ordered"] == {**reached, "order": "steps 12"} or None)
    for process in processes:
        assert wire.Selected(selection="12", revision=3, stopped=False, source="api") == process.receive()
    own = places["n1"].post("/api/profile", steps="13")
    assert ("n1", []) == (own["node"], own["nodes"])
    assert ["13", "12"] == [status(places[name])["selection"] for name in ("n1", "n2")]


def test_what_a_rank_of_a_node_did_not_record_is_named_upstream_and_counted_on_its_node(tmp_path: Path) -> None:
    """
    By the API, on the page of the step and by the command line; the metric, which an alert reads, is the node's alone.
    """
    with upstream(tmp_path) as hub, fleet(tmp_path, hub, "n1") as places, agent(places["n1"]) as process:
        for step in (5, 6):
            process.send(wire.Version(step=step, param_version=step - 1))
            process.send(wire.StepClosed(step=step, param_version=step))
        found = shows(lambda: hub.get("/api/missing?step=5").json() or None)
        own = places["n1"].announced()
        kind = {"content-type": "application/x-protobuf"}
        httpx.post(
            f"{own['otlp_http']}/v1/traces", content=body(span(1, step=5)), headers=kind, timeout=60, trust_env=False
        )
        page = shows(lambda: answer.text if (answer := hub.get("/steps/5")).is_success else None)
        series = 'stepscope_missing_ranks{role="trainer"} '
        above = hub.get("/metrics").text

        where = {"node": "n1", "run": "run", "attempt": "a1"}
        assert [{**where, "step": 5, "role": "trainer", "rank": 1, "reason": "not_asked"}] == found
        assert "0 of 1 recordings that were expected are there" in page
        printed = command_line(hub.place.folder, "windows")
        assert ["missing: step 5, trainer 1 on n1: not_asked"] == printed.splitlines()[-1:]
        # It may report what is missing before it has written it down.
        shows(lambda: f"{series}1.0" in httpx.get(f"{own['http']}/metrics", timeout=60, trust_env=False).text or None)
        assert series not in above


def test_a_sidecar_that_is_its_own_upstream_reports_nothing(tmp_path: Path) -> None:
    """
    Named by its port, or noticed when its own report arrives.
    """
    place, port = node(tmp_path, "n1"), free_port()
    same = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{port}"}
    alone = replace(place, env={**place.env, **same, "STEPSCOPE_OTLP_HTTP": f"127.0.0.1:{port}"})
    with alone.sidecar(), agent(alone) as process:
        grant = process.open(5)
        process.send(process.write(grant))
        alone.settled("ready")
    noticed = replace(place, env={**place.env, **same})
    with noticed.sidecar():
        assert noticed.announced()["otlp_http"].endswith(f":{port}")
        eventually(lambda: reporting(noticed) == "foreign" or None)
    with open_reader(place.attempt / "stepscope.db") as reader:
        assert ([], []) == (reader.nodes(), reader.elsewhere())
        assert 0 == reader.pending()


def test_artifacts_lie_in_the_object_store_when_their_node_is_gone(tmp_path: Path) -> None:
    """
    With STEPSCOPE_ARTIFACTS the row says that the copy is there, and the upstream takes it from there.
    """
    store = {"STEPSCOPE_ARTIFACTS": f"file://{tmp_path}/bucket"}
    with upstream(tmp_path, **store) as hub:
        n1 = node(tmp_path, "n1", **below(hub), **store)
        with n1.sidecar() as sidecar, agent(n1) as process:
            process.send(process.write(process.open(5)))
            row = shows(lambda: ((found := hub.windows().get("n1", {})).get("stored") == "stored" and found) or None)
            # It tells the upstream before it writes that down.
            shows(lambda: n1.windows()[0].stored == "stored" or None)
            sidecar.kill()
            sidecar.communicate()
        path = row["artifact"].removeprefix("stepscope://n1/")

        assert f"file://{tmp_path}/bucket/n1/{path}" == row["stored_url"]
        assert b"aten::mm" in gzip.decompress(hub.get(f"/nodes/n1/artifacts/{path}").content)
        assert re.search(r"copy: stored", hub.get("/").text)
    assert "stored" == n1.windows()[0].stored


def test_nodes_that_share_a_folder_keep_stores_of_their_own(tmp_path: Path) -> None:
    """
    As on a file system of the whole cluster: the first has the attempt's folder, the second one in it.
    """
    with upstream(tmp_path) as hub:
        first = node(tmp_path, "n1", **below(hub))
        second = replace(node(tmp_path, "n2", **below(hub), STEPSCOPE_DIR=str(first.folder)), folder=first.folder)
        with first.sidecar():
            other = second.start()
            try:
                shows(lambda: _announced(first.attempt / "nodes" / "n2"))
                with agent(first) as one, agent(second) as two:
                    for process in (one, two):
                        process.send(process.write(process.open(5)))
                    found = hub.waits(n1="ready", n2="ready")
                    for name, row in found.items():
                        path = row["artifact"].removeprefix(f"stepscope://{name}/")
                        assert 200 == hub.get(f"/nodes/{name}/artifacts/{path}").status_code
                    assert ("/nodes/n2/" in found["n2"]["artifact"], "/nodes/" in found["n1"]["artifact"]) == (
                        True,
                        False,
                    )
            finally:
                _end(other)
        assert ["n1"] == [row.node for row in first.windows()]
        printed = json.loads(command_line(first.folder, "windows", "--json", "--run", "run-a1/nodes/n2"))
        assert [("n2", True)] == [(row["node"], Path(row["artifact"]).is_file()) for row in printed]
        assert "run-a1" == os.readlink(first.folder / "latest")  # noqa: PTH115 - relative, as it was made


def test_the_commands_of_the_page_on_nodes_set_it_up(tmp_path: Path) -> None:
    """
    As they stand but for names and ports: open to other machines, with the token everywhere. A node that does not show
    it is not listed, and nobody fetches anything without it.
    """
    hub_block, node_block = SHELL.findall(PAGE.read_text(encoding="utf-8"))[:2]
    bare = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    commands = hub_block.replace("/shared", str(tmp_path)).replace(":8321", ":0").replace(":4318", ":0")
    hub = subprocess.Popen(
        ["bash", "-ec", commands],
        env={**bare, "STEPSCOPE_DIR": str(tmp_path / "hub"), "STEPSCOPE_ATTEMPT": "h1"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    announced: dict[str, Any] = {}
    try:
        announced = eventually(lambda: _announced(tmp_path / "hub" / "hub-h1"), deadline=DEADLINE)
        shown = {"Authorization": f"Bearer {(tmp_path / 'stepscope.token').read_text().strip()}"}
        exports = node_block.replace("/shared", str(tmp_path)).replace("http://hub:4318", announced["otlp_http"])
        printed = subprocess.run(
            ["bash", "-ec", f"{exports}env -0"],
            env=bare,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        set_up = dict(item.split("=", 1) for item in printed.split("\0") if item.startswith(("STEPSCOPE_", "OTEL_")))
        place = node(tmp_path, "n1", **set_up)
        stranger = node(tmp_path, "n2", OTEL_EXPORTER_OTLP_ENDPOINT=announced["otlp_http"])
        with stranger.sidecar(), place.sidecar(), agent(stranger) as unknown, agent(place) as process:
            for one in (unknown, process):
                one.send(one.write(one.open(5)))
            with httpx.Client(base_url=announced["http"], headers=shown, trust_env=False, timeout=60) as client:
                row = shows(lambda: next((w for w in client.get("/api/windows").json() if w["state"] == "ready"), None))
                stranger.settled("ready")
                eventually(lambda: reporting(stranger).startswith("401") or None)
                assert ["n1"] == [listed["node"] for listed in client.get("/api/windows").json()]
                assert ["n1"] == [listed["node"] for listed in client.get("/api/nodes").json()]
                path = row["artifact"].removeprefix("stepscope://n1/")
                answer = client.get(f"/nodes/n1/artifacts/{path}")
            assert b"aten::mm" in gzip.decompress(answer.content)
            assert (
                401
                == httpx.get(f"{announced['http']}/nodes/n1/artifacts/{path}", timeout=60, trust_env=False).status_code
            )
    finally:
        if announced:
            os.kill(announced["pid"], signal.SIGTERM)
        else:
            hub.kill()
        hub.wait(60)


def test_a_node_of_the_run_can_be_the_upstream(tmp_path: Path) -> None:
    """
    One environment for all: the node that it names keeps what it gets, of its own processes without the token too.
    """
    secret = tmp_path / "token"
    secret.write_text("s3cret")
    same = {
        "STEPSCOPE_TOKEN_FILE": str(secret),
        "STEPSCOPE_OTLP_GRPC": "off",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cret",
    }
    port = free_port()
    same["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
    first = node(tmp_path, "n1", **same, STEPSCOPE_OTLP_HTTP=f"0.0.0.0:{port}")
    second = node(tmp_path, "n2", **same)
    with first.sidecar(), second.sidecar(), agent(first) as one, agent(second) as two:
        for process in (one, two):
            process.send(process.write(process.open(5)))
        hub = Upstream(first)
        shown = {"Authorization": "Bearer s3cret"}

        def listed() -> list[dict[str, Any]] | None:
            rows: list[dict[str, Any]] = hub.get("/api/windows", headers=shown).json()
            both = [("n1", "ready"), ("n2", "ready")] == [(row["node"], row["state"]) for row in rows]
            return rows if both else None

        found = shows(listed)
        assert str(first.folder) in found[0]["artifact"]
        shows(lambda: len(hub.spans("profile.capture")) == 2 or None)
        local = first.announced()["otlp_local"]
        kind = {"content-type": "application/x-protobuf"}
        told = [
            httpx.post(f"{url}/v1/traces", content=body(span(9)), headers=kind, timeout=60, trust_env=False).status_code
            for url in (local, f"http://127.0.0.1:{port}")
        ]
        assert [200, 401] == told
        assert (
            0 == httpx.get(f"{hub.url}/api/status", headers=shown, timeout=60, trust_env=False).json()["spans_pending"]
        )


def _announced(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / "sidecar.json").read_text())
    except (OSError, ValueError):
        return None
    return found


def timed(node: dict[str, object]) -> bool:
    """
    Whether the clock of ``node`` is known.
    """
    return bool(node["clock_error_seconds"])


def status(place: Place) -> dict[str, Any]:
    """
    What a node says of itself.
    """
    found: dict[str, Any] = httpx.get(f"{place.announced()['http']}/api/status", timeout=60, trust_env=False).json()
    return found


def reporting(place: Place) -> str:
    """
    How reporting stands at a node.
    """
    return str(status(place)["reports"]["state"])


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    process.communicate(timeout=120)
