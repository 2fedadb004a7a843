"""
Kills inside a window: the sidecar of a node, a process of it and the upstream, all at once, and each started again.
"""

import os
import signal
from pathlib import Path

import httpx
import pytest

from stepscope_sidecar.reader import open_reader
from tests.unit.sidecar.bodies import body, span

from .agent import agent_process
from .collector import free_port
from .fleet import agent, below, node, shows, upstream
from .place import Place

pytestmark = pytest.mark.slow

PROTOBUF = {"content-type": "application/x-protobuf"}


def test_whoever_is_killed_in_a_window_nothing_received_is_lost(tmp_path: Path) -> None:
    """
    Every window ends in a final state with a reason, on its node and upstream, and every span that the node had taken
    arrives; also what it took while the upstream was away.
    """
    # Of its own port nobody is to be while it is away.
    with upstream(tmp_path, STEPSCOPE_OTLP_HTTP=f"127.0.0.1:{free_port()}") as hub:
        n1 = node(tmp_path, "n1", **below(hub))
        with n1.sidecar() as sidecar, agent(n1) as survivor:
            grant = survivor.open(5)
            victim, window = agent_process(n1.socket)
            shows(lambda: {"recording"} == states(hub.get("/api/windows").json(), grant.window, window) or None)
            os.kill(hub.place.announced()["pid"], signal.SIGKILL)
            taken = httpx.post(
                f"{n1.announced()['otlp_http']}/v1/traces",
                content=body(span(9)),
                headers=PROTOBUF,
                timeout=60,
                trust_env=False,
            )
            assert 200 == taken.status_code
            sidecar.kill()
            sidecar.communicate()
            victim.kill()
            victim.communicate()
            # A process goes on without its sidecar, and closes its window at the boundary.
            survivor.write(grant)
        with n1.sidecar():
            expected = {grant.window: ("ready", "boundary"), window: ("aborted", "process_lost")}
            shows(lambda: ends(n1) == expected or None)
            with hub.place.sidecar():
                told = shows(
                    lambda: (
                        expected == {row["window"]: (row["state"], row["reason"]) for row in rows} and rows
                        if (rows := hub.get("/api/windows").json())
                        else None
                    )
                )
                shows(lambda: {grant.window, window} <= set(hub.spans("profile.capture")) or None)
                with open_reader(hub.place.attempt / "stepscope.db") as reader:
                    assert [f"{9:016x}"] == [row.span_id for row in reader.spans(name="train.update_actor")]
                ready = next(row for row in told if row["window"] == grant.window)
                path = ready["artifact"].removeprefix("stepscope://n1/")
                assert ready["bytes"] == len(hub.get(f"/nodes/n1/artifacts/{path}").content)
                assert "present" == hub.nodes()["n1"]["state"]
                n1_pid = n1.announced()["pid"]
                os.kill(n1_pid, signal.SIGTERM)
                shows(lambda: hub.nodes()["n1"]["state"] == "ended" or None)


def states(rows: list[dict[str, str]], *windows: str) -> set[str]:
    """
    The states of these windows; one that is not listed has the state "".
    """
    found = {row["window"]: row["state"] for row in rows}
    return {found.get(window, "") for window in windows}


def ends(place: Place) -> dict[str, tuple[str, str]]:
    """
    How the windows of a node stand on the node itself.
    """
    return {row.window: (row.state, row.reason) for row in place.windows()}
