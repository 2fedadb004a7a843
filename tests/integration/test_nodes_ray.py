"""
Three nodes of a Ray cluster on this machine: three sidecars, one upstream, and what is left when parts are killed.
"""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from stepscope_sidecar.reader import open_reader

from .fleet import Upstream, below, shows, upstream
from .jobs import BOUNDARY_SECONDS, eventually

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@dataclass
class Cluster:
    """
    The running program.
    """

    process: "subprocess.Popen[str]"
    folder: Path
    env: dict[str, str]

    def do(self, command: str) -> Any:
        """
        Have a command carried out.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return self.line()["answer"]

    def line(self) -> dict[str, Any]:
        """
        The next line of JSON that it prints.
        """
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if text.startswith("{"):
                found: dict[str, Any] = json.loads(text)
                return found
        raise AssertionError("the program has ended")

    def sidecars(self) -> dict[str, int]:
        """
        The pids of the sidecars by node, as each wrote it down.
        """
        found = {}
        for path in self.folder.glob("ray-b1/**/sidecar.json"):
            pid = json.loads(path.read_text())["pid"]
            with suppress(OSError):
                pairs = (item.partition("=") for item in Path(f"/proc/{pid}/environ").read_text().split("\0"))
                found[{name: value for name, _, value in pairs}["STEPSCOPE_NODE"]] = pid
        return found

    def connected(self, node: str) -> bool:
        """
        Whether a process of ``node`` is connected to the sidecar that is there now.
        """
        for path in self.folder.glob("ray-b1/**/sidecar.json"):
            with suppress(httpx.HTTPError):
                url = json.loads(path.read_text())["http"]
                found = httpx.get(f"{url}/api/status", timeout=60, trust_env=False, verify=False).json()
                if found["node"] == node and any(process["connected"] for process in found["processes"]):
                    return True
        return False

    @contextmanager
    def sidecar(self, node: str) -> Iterator[None]:
        """
        Another sidecar for ``node``, as a supervisor would start it.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "stepscope_sidecar", "--attended", "yes"],
            env={**self.env, "STEPSCOPE_NODE": node},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(120)


@contextmanager
def cluster(tmp_path: Path, hub: Upstream) -> Iterator[Cluster]:
    """
    The program, once all its workers have registered.
    """
    env = {
        **os.environ,
        **below(hub),
        "RAY_AUTH_MODE": "disabled",
        "STEPSCOPE_DIR": str(tmp_path / "shared"),
        "STEPSCOPE_BOUNDARY_SECONDS": f"{BOUNDARY_SECONDS:g}",
        "STEPSCOPE_RUN": "ray",
        "STEPSCOPE_ATTEMPT": "b1",
        "STEPSCOPE_STEPS": "1-3",
        "STEPSCOPE_RANKS": "all",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.cluster_loop"],
        env=env,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    found = Cluster(process, tmp_path / "shared", env)
    try:
        assert found.line()["ready"]
        yield found
    finally:
        process.communicate(timeout=120)
        for pid in found.sidecars().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        eventually(lambda: not found.sidecars() or None, deadline=60)


def of(hub: Upstream, step: int) -> dict[str, dict[str, Any]]:
    """
    The windows of a step that the upstream lists, by node.
    """
    return {row["node"]: row for row in hub.get(f"/api/windows?step={step}").json()}


def ends(hub: Upstream, step: int, **expected: str) -> dict[str, dict[str, Any]]:
    """
    The windows of a step once those of the nodes that are named have ended so.
    """

    def look() -> dict[str, dict[str, Any]] | None:
        found = of(hub, step)
        return found if {name: found.get(name, {}).get("state") for name in expected} == expected else None

    try:
        return shows(look)
    except AssertionError:
        raise AssertionError(f"{expected} expected, these are: {of(hub, step)}") from None


def test_three_nodes_of_a_cluster_and_their_losses(tmp_path: Path) -> None:
    """
    Each node's sidecar decides and reports; a killed sidecar, worker and node each cost what they alone knew.
    """
    with upstream(tmp_path) as hub, cluster(tmp_path, hub) as program:
        workers = program.do("pids")
        # On a crowded machine a sidecar may take longer to begin than whoever starts it waits for it.
        shows(lambda: all(program.connected(name) for name in workers) or None)
        program.do("enter")
        program.do("leave")
        found = ends(hub, 1, n0="ready", n1="ready", n2="ready")
        sidecars = program.sidecars()
        assert {"n0", "n1", "n2"} == sidecars.keys() == workers.keys()
        assert 3 == len(set(sidecars.values()))
        assert workers == {name: row["pid"] for name, row in found.items()}
        assert 1 == len({row["trace_id"] for row in found.values()})
        for name, row in found.items():
            path = row["artifact"].removeprefix(f"stepscope://{name}/")
            recording = gzip.decompress(hub.get(f"/nodes/{name}/artifacts/{path}").content)
            assert b"train.update_actor" in recording
            assert f'href="nodes/{name}/artifacts/{path}"' in hub.get("/").text
        captured = {row["window"] for row in found.values()}
        shows(lambda: captured <= set(hub.spans("profile.capture")) or None)
        shows(lambda: [0, 1, 2] == _ranks(hub, 1) or None)

        program.do("enter")
        ends(hub, 2, n0="recording", n1="recording", n2="recording")
        for pid in (sidecars["n1"], sidecars["n2"], workers["n0"]):
            os.kill(pid, signal.SIGKILL)
        program.do("remove n2")
        program.do("gone n0")
        program.do("leave")
        with program.sidecar("n1"):
            shows(lambda: program.connected("n1") or None)
            # The rest goes on.
            program.do("enter")
            program.do("leave")
            lost = ends(hub, 2, n0="aborted", n1="ready", n2="lost")
            assert ("process_lost", "boundary", "node_vanished") == tuple(
                lost[name]["reason"] for name in ("n0", "n1", "n2")
            )
            ends(hub, 3, n1="ready")
            assert {"n1"} == of(hub, 3).keys()
            assert "vanished" == hub.nodes()["n2"]["state"]
            assert 502 == hub.get(f"/artifacts/{found['n2']['artifact'].removeprefix('stepscope://n2/')}").status_code
            # What it had been given of that node it still has.
            assert {0, 1, 2} == set(_ranks(hub, 1))
    assert {"ready", "aborted", "lost"} == {row["state"] for row in hub.printed()}


def _ranks(hub: Upstream, step: int) -> list[int]:
    """
    The ranks whose part of ``step`` the upstream has been told of.
    """
    with open_reader(hub.place.attempt / "stepscope.db") as reader:
        return sorted(row.rank or 0 for row in reader.spans(step=step, name="rl.step.process"))
