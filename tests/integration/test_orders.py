"""
What a person orders a running sidecar to do: over HTTP, and by the STOP file.
"""

import httpx

from stepscope import wire
from stepscope_sidecar.reader import open_reader

from .agent import Agent
from .jobs import eventually
from .place import Place


def test_stop_and_profile_reach_a_connected_process(place: Place) -> None:
    """
    Orders over HTTP are pushed at once: stop closes the window, profile selects anew.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        grant = agent.open(5)
        eventually(lambda: [row for row in place.windows() if row.state == "recording"])
        told = place.post("/api/stop")
        pushed = [agent.receive(), agent.receive()]
        denied = agent.answer(wire.Open(id=3, step=8, param_version=7))
        place.post("/api/profile", steps="12")
        selected = agent.receive()

    assert 1 == told["windows_open"]
    assert wire.Selected(selection="5,8-9", revision=2, stopped=True, source="api") in pushed
    assert wire.Stop(window=grant.window, reason="stopped_by_user") in pushed
    assert wire.Deny(id=3, reason="stopped_by_user") == denied
    assert wire.Selected(selection="12", revision=3, stopped=False, source="api") == selected


def test_a_restart_keeps_the_selection_and_the_stop(place: Place) -> None:
    """
    An order given once holds for the attempt, whatever the environment says.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        place.post("/api/profile", steps="12")
        place.post("/api/stop")
    with place.sidecar(), Agent(place.socket) as agent:
        registered = agent.register()

    assert isinstance(registered, wire.Registered)
    assert ("12", 3, True) == (registered.selection, registered.revision, registered.stopped)


def test_a_stop_file_stops_the_run(place: Place) -> None:
    """
    `STOP` in STEPSCOPE_DIR is an order, until `profile` overrides it.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        agent.register()
        (place.folder / "STOP").touch()
        stopped = agent.receive()
        place.post("/api/profile", steps="12")
        selected = agent.receive()
        denied = agent.answer(wire.Open(id=3, step=8, param_version=7))

    assert wire.Selected(selection="5,8-9", revision=2, stopped=True, source="file") == stopped
    assert wire.Selected(selection="12", revision=3, stopped=False, source="api") == selected
    assert wire.Deny(id=3, reason="step_not_selected") == denied


def test_a_stop_file_that_an_earlier_run_left_is_told_of(place: Place) -> None:
    """
    To each process that registers, and without its folder in the status, and in the store once the run has ended.
    """
    place.folder.mkdir()
    (place.folder / "STOP").touch()
    with place.sidecar(), Agent(place.socket) as agent:
        registered = agent.register()
        denied = agent.answer(wire.Open(id=3, step=5, param_version=4))
        status = httpx.get(f"{place.announced()['http']}/api/status", timeout=60, trust_env=False).json()
    with open_reader(place.attempt / "stepscope.db") as reader:
        kept = reader.selections()[-1]

    by = f"file {place.folder / 'STOP'}"
    assert isinstance(registered, wire.Registered)
    assert [True] == [f"stopped by the {by}" in warning for warning in registered.warnings]
    assert wire.Deny(id=3, reason="stopped_by_user") == denied
    assert (True, "file …/STOP") == (status["stopped"], status["stopped_by"])
    assert (True, "file …/STOP") == (kept.stopped, kept.source)
