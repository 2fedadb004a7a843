"""
Recordings of Ascend the whole way: by a stand-in for torch_npu in a real job, and a real one that is only closed.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from stepscope import wire
from stepscope.profilers import cann
from stepscope_sidecar.artifacts import ascend, tree
from stepscope_sidecar.reader import open_reader
from tests.integration.agent import SPAN, TRACE, Agent
from tests.integration.jobs import CLI, Job, command_line, environment
from tests.integration.place import placed
from tests.standins import signatures
from tests.unit.sidecar import traces

STANDINS = Path(signatures.__file__).parent
RECORDED = traces.DATA / "ascend" / "db_level0" / "rank0_ascend_pt"

LOOP = """
import json, sys
import stepscope
stepscope.init(role="trainer", rank=0, total_steps=3)
for version in (1, 2, 3):
    with stepscope.step():
        with stepscope.span("train.update_actor", bucket="productive") as span:
            pass
        stepscope.weights_published(version)
stepscope.shutdown()
print(json.dumps(sys.modules["torch_npu.npu.mstx"].marks))
"""


def test_a_job_records_with_the_standin(tmp_path: Path) -> None:
    """
    A stand-in, not a device: the driver's way from the selection to a listed artifact. The folder is torch_npu's own,
    it carries our labels, its window hangs on the span that opened it, and the spans inside were ranges of mstx.
    """
    (tmp_path / "cann" / "lib64").mkdir(parents=True)
    (tmp_path / "cann" / "lib64" / cann.RUNTIME).touch()
    settings = {
        "STEPSCOPE_STEPS": "2-3",
        "STEPSCOPE_TOOLS": "torch_npu",
        "PYTHONPATH": str(STANDINS),
        "ASCEND_HOME_PATH": str(tmp_path / "cann"),
    }
    done = subprocess.run(
        [*CLI, "run", "--", sys.executable, "-c", LOOP],
        env=environment(tmp_path / "runs", **settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    job = Job(directory=tmp_path / "runs", code=done.returncode, output=done.stdout, errors=done.stderr)

    assert 0 == done.returncode, done.stderr
    processes = {span["attributes"]["rl.step"]: span for span in job.named("rl.step.process")}
    captures = {span["attributes"]["rl.step"]: span for span in job.named("profile.capture")}
    assert {2: "ready", 3: "ready"} == {window["step"]: window["state"] for window in job.windows}, done.stderr
    for window in job.windows:
        artifact, step = Path(window["artifact"]), window["step"]
        assert ("torch_npu", "spans", None) == (window["tool"], window["level"], window["complete"])
        assert artifact.name.startswith("rank0_")
        assert artifact.name.endswith("_ascend_pt")
        assert (window["bytes"], window["sha256"]) == tree.measure(artifact)
        metadata = json.loads((artifact / "profiler_metadata.json").read_text())
        link = json.loads((artifact / "stepscope.json").read_text())
        assert (str(step), processes[step]["span_id"]) == (metadata["stepscope.step"], metadata["stepscope.span_id"])
        assert link == {key: value for key, value in metadata.items() if key.startswith("stepscope.")}
        assert processes[step]["span_id"] == captures[step]["parent_span_id"] == window["span_id"]
    marks = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    updates = {span["span_id"] for span in job.named("train.update_actor") if span["attributes"]["rl.step"] > 1}
    begun = {
        str(text)[-16:] for kind, text in marks if kind == "start" and str(text).startswith("train.update_actor #")
    }
    assert updates == begun
    assert len([kind for kind, _ in marks if kind == "start"]) == len([kind for kind, _ in marks if kind == "end"])


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the shared recordings are not beside this repository")
def test_a_recorded_folder_goes_the_whole_way(tmp_path: Path) -> None:
    """
    Closed, finalised by a real child, linked and listed: what a real device has left becomes the window's artifact.
    """
    begin, end = ascend.inspect(RECORDED).session_unix_ns
    fact = json.loads((traces.DATA / "facts.json").read_text())[
        "ascend/db_level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"
    ]
    place = placed(tmp_path)
    place.env["STEPSCOPE_TOOLS"] = "torch_npu"
    metadata = {"stepscope.step": "5", "stepscope.trace_id": TRACE, "stepscope.span_id": SPAN}

    with place.sidecar(), Agent(place.socket, tools={"torch_npu": ""}) as agent:
        agent.register()
        grant = agent.open(5)
        folder = Path(grant.folder)
        shutil.copytree(RECORDED, folder / RECORDED.name)
        record = wire.Closed(
            window=grant.window,
            reason="boundary",
            version_at_close=5,
            opened_unix_ns=begin,
            closed_unix_ns=end,
            artifact=RECORDED.name,
            trace_id=TRACE,
            span_id=SPAN,
            level=grant.level,
            stall={"stop": 0.5},
            metadata=metadata,
        )
        (folder / "closed.json").write_bytes(wire.encode(record))
        agent.send(record)
        row = place.settled("ready")
        url = f"{place.announced()['http']}/artifacts/{row.artifact}"
        served = httpx.get(f"{url}/profiler_info_0.json", timeout=60, trust_env=False)

    artifact = place.folder / row.artifact
    [listed] = json.loads(command_line(place.folder, "windows", "--json"))
    with open_reader(place.attempt / "stepscope.db") as reader:
        [capture] = [span for span in reader.spans() if span.name == "profile.capture"]
    assert "torch_npu" == grant.tool
    assert (str(artifact), True, "ready") == (listed["artifact"], listed["complete"], listed["state"])
    assert (row.bytes, row.sha256) == tree.measure(artifact)
    assert fact["bytes"] < row.bytes
    assert metadata == json.loads((artifact / "stepscope.json").read_text())
    assert (TRACE, SPAN, begin, end) == (
        capture.trace_id,
        capture.parent_span_id,
        capture.start_unix_ns,
        capture.end_unix_ns,
    )
    assert f"stepscope:{row.artifact}" == capture.attributes["profile.artifact.uri"]
    assert url == capture.attributes["profile.artifact.url"]
    assert served.content == (RECORDED / "profiler_info_0.json").read_bytes()
    for stored in place.attempt.glob("stepscope.db*"):
        assert b"ENV_VARIABLES" not in stored.read_bytes()
