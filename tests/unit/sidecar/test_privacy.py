"""
No path of this machine reaches rows, spans, the status or the page: the last name of what is meant does.
"""

from pathlib import Path

import httpx
import pytest

from stepscope import wire
from stepscope.names import Reason, State
from stepscope_sidecar.api import Sources, create_app
from stepscope_sidecar.jobs import Result
from stepscope_sidecar.ledger import StoreLedger
from stepscope_sidecar.live import Live
from stepscope_sidecar.reader import open_reader
from stepscope_sidecar.store import Store

from .calling import Caller
from .rig import Rig, closed, started


def test_paths_of_the_machine_stay_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Whoever said them: a tool that cannot be used, a profiler that failed, finalising, a file that stopped the run.
    """
    secret = str(tmp_path / "someone")
    rig = Rig(tmp_path)
    path = tmp_path / "s.db"
    with_store = Store.open(path, run="run", attempt="a1")
    ledger = StoreLedger(with_store, rig.settings, url=lambda: "http://127.0.0.1:1", unix_ns=lambda: 1)
    monkeypatch.setattr(rig, "ledger", ledger)
    monkeypatch.setattr(rig, "troubles", [f"STEPSCOPE_STEPS_FILE={secret}/steps: not text"])
    rig.controller = rig.make()
    try:
        poor, poor_link = rig.register(tools={"torch": f"cannot load {secret}/libkineto.so"})
        rig.open(poor, poor_link)
        failing, link = rig.register(101, rank=1)
        window = rig.open(failing, link)
        message = f"PermissionError: [Errno 13] Permission denied: '{secret}/recording.json'"
        rig.controller.handle(
            failing, wire.Ended(window=window, state=State.FAILED, reason=Reason.START_ERROR, detail=message, stall={})
        )
        broken, link = rig.register(102, rank=2)
        window = rig.open(broken, link)
        rig.controller.handle(broken, started(window))
        rig.controller.handle(broken, closed(window))
        rig.controller.finalised(
            Result(window=window, reason=Reason.ARTIFACT_INVALID, detail=f"no trace in {secret}/torch")
        )
        rig.controller.stop(f"file {secret}/STOP")
    finally:
        with_store.close()

    live = Live(rig.controller, node="here", pending=lambda: 0, unsaved=lambda: 0, estimates=dict)
    caller = Caller(
        create_app(Sources(live=live, store=path, directory=tmp_path, metrics=lambda _: (b"", "text/plain"))),
        host="127.0.0.1",
    )
    answers: list[httpx.Response] = [caller.get(route) for route in ("/", "/api/status", "/api/windows", "/api/spans")]
    with open_reader(path) as reader:
        rows = [*reader.windows(), *reader.processes(), *reader.selections(), *reader.spans()]
    shown = " ".join(answer.text for answer in answers)
    assert [200] * 4 == [answer.status_code for answer in answers]
    assert str(tmp_path) not in shown
    assert str(tmp_path) not in str(rows)
    for name in ("…/libkineto.so", "…/recording.json", "…/torch", "…/STOP", "…/steps"):
        assert name in shown
    assert {"cannot load …/libkineto.so"} == {
        row.tools["torch"] for row in rows if hasattr(row, "tools") and row.tools["torch"]
    }
