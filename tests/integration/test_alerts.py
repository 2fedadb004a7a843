"""
The alerts on a real Prometheus and a real Alertmanager: one that should fire reaches a webhook, and a normal run sends
nothing.

Alerts wait a sixtieth of the time that the rules say, and are evaluated each second; the rest of the rules is as it is.
"""

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration import jobs
from tests.integration.jobs import eventually
from tests.integration.programs import ROOT
from tests.integration.prometheus import Prometheus, listening, prometheus, running, target
from tests.unit.sidecar.stored import WAIT, holds

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "stepscope.rules.yml"

FASTER = 60
"""How many times sooner than the rules say an alert fires that stays true: minutes become seconds."""

OVERHEAD = "StepscopeProfilingOverheadHigh"
DOWN = "StepscopeSidecarDown"

BUSY = 120.0
"""Seconds in which the alert must have arrived on a machine that has other things to do; at rest it takes ten."""

SLOW_TORCH = ROOT / "tests" / "standins" / "slow_torch"

SLOW = {"STANDIN_STOP_SECONDS": "6"}
"""Of the stand-in: several steps of the demo at rest, and one on a busy machine."""

ROUNDS = 7
"""Evaluations in which a normal run must have sent nothing; more than any alert waits, in seconds."""


def sooner(folder: Path) -> Path:
    """
    A copy of the rules whose alerts wait a sixtieth of the time. Not the one on a sidecar that does not answer: on a
    crowded machine it would fire after two scrapes that came late.
    """
    data = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for group in data["groups"]:
        for rule in group["rules"]:
            if (minutes := rule.get("for", "")) and rule["alert"] != DOWN:
                assert minutes.endswith("m")
                rule["for"] = f"{int(minutes[:-1]) * 60 // FASTER}s"
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


@contextlib.contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """
    A receiver of what Alertmanager sends: its URL, and the alerts so far.
    """
    received: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """
            Note the alerts.
            """
            data = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.extend(data["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """
            Say nothing.
            """

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, name="webhook")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", received
    finally:
        server.shutdown()
        thread.join(WAIT)
        server.server_close()


@contextlib.contextmanager
def alertmanager(folder: Path, *, url: str) -> Iterator[str]:
    """
    An Alertmanager that tells ``url`` at once; its host:port.
    """
    if ALERTMANAGER is None:
        pytest.skip("Debian's prometheus-alertmanager is not installed")
    folder.mkdir()
    configuration = {
        "route": {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"},
        "receivers": [{"name": "test", "webhook_configs": [{"url": url}]}],
    }
    path = folder / "alertmanager.yml"
    path.write_text(json.dumps(configuration), encoding="utf-8")
    options = [f"--config.file={path}", f"--storage.path={folder / 'data'}", "--cluster.listen-address="]
    command = [ALERTMANAGER, *options, "--web.listen-address=127.0.0.1:0"]
    with listening(command, log=folder / "alertmanager.log", sign=r'(?i)listening on" address=(127\S+)') as address:
        yield address


def evaluated(found: Prometheus) -> str:
    """
    When the rules were last evaluated.
    """
    return max((str(rule["lastEvaluation"]) for rule in found.rules()), default="")


def test_the_alert_on_a_slow_profiler_arrives_and_a_normal_run_sends_nothing(tmp_path: Path) -> None:
    """
    Two runs side by side, alike but for the stand-in for a profiler, which in one takes half a second to stop.

    In the normal run a step's work is a thousand times as long, by the clock of its spans: what a busy machine adds to
    the start of a profiler is small beside it.
    """
    with (
        webhook() as (url, received),
        alertmanager(tmp_path / "alertmanager", url=url) as alerting,
        running(tmp_path / "slow") as slow,
        running(tmp_path / "normal", "--slow", "0", "--work", "50") as normal,
        prometheus(
            tmp_path / "prometheus",
            targets=[slow.target, normal.target],
            rules=sooner(tmp_path),
            alertmanager=alerting,
        ) as found,
    ):
        assert holds(lambda: found.value("count(up == 1)") == 2.0)
        slow.go()
        normal.go()

        def arrived(role: str) -> list[dict[str, Any]]:
            wanted = {"alertname": OVERHEAD, "instance": slow.target, "role": role}
            return [item for item in received if wanted.items() <= item["labels"].items()]

        both = eventually(lambda: arrived("trainer") and arrived("rollouter") and list(received), deadline=BUSY)
        windows = f'sum(stepscope_windows_total{{instance="{normal.target}",outcome="ready"}})'
        assert eventually(lambda: (found.value(windows) or 0.0) >= 3.0, deadline=BUSY)
        seen: set[str] = set()

        def looked() -> bool:
            seen.add(evaluated(found))
            return len(seen) > ROUNDS

        assert holds(looked)
        wrong = [rule for rule in found.rules() if rule["health"] != "ok"]
        sent = list(received)

    assert [] == wrong
    assert "firing" == both[0]["status"]
    assert {"warning"} == {item["labels"]["severity"] for item in arrived("trainer")}
    assert "docs/en/runbook.md#stepscopeprofilingoverheadhigh" == arrived("trainer")[0]["annotations"]["runbook_url"]
    assert [] == [item for item in sent if item["labels"]["instance"] == normal.target]
    assert {OVERHEAD} == {item["labels"]["alertname"] for item in sent}


def test_the_alert_on_the_demo_with_a_slow_profiler_arrives(tmp_path: Path) -> None:
    """
    The demo's job, on Ray, with torch's profiler; a stand-in makes its stop take longer than several steps do.

    How much it costs is not known to a tenth on a machine that is as busy as this, that it costs much is.
    """
    standin = {"PYTHONPATH": os.pathsep.join([str(SLOW_TORCH), os.environ.get("PYTHONPATH", "")]), **SLOW}
    settings: dict[str, Any] = {"STEPSCOPE_STEPS": "every:6", "STEPSCOPE_LEVEL": "ops", **standin}
    with (
        webhook() as (url, received),
        alertmanager(tmp_path / "alertmanager", url=url) as alerting,
        jobs.running(tmp_path / "runs", "--steps", "500", **settings) as job,
    ):
        address = eventually(lambda: target(tmp_path / "runs") if job.process.poll() is None else "ended")
        with prometheus(
            tmp_path / "prometheus", targets=[address], rules=sooner(tmp_path), alertmanager=alerting
        ) as found:
            first = eventually(lambda: list(received), deadline=jobs.JOB_DEADLINE)[0]
            # No value is a scrape that came late.
            least = eventually(
                lambda: found.value("max(stepscope_profiling_overhead_lower_bound_ratio)"), deadline=BUSY
            )

    assert ("firing", OVERHEAD, address) == (first["status"], first["labels"]["alertname"], first["labels"]["instance"])
    assert least > 0.1
