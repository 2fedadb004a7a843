"""
The watched file of steps, with a real sidecar: followed while the run goes on, and beside what people say.
"""

from pathlib import Path

import pytest

from stepscope import wire

from .agent import Agent
from .place import Place, placed


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """
    A file as a ConfigMap has it, saying 7: a link, by way of a folder that is replaced whole.
    """
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "steps").symlink_to("..data/steps")
    replaced(folder / "steps", "7\n")
    return folder / "steps"


@pytest.fixture
def place(tmp_path: Path, mounted: Path) -> Place:
    """
    An attempt whose environment selects 5 and 8-9, and names the file.
    """
    made = placed(tmp_path)
    made.env["STEPSCOPE_STEPS_FILE"] = str(mounted)
    return made


def replaced(path: Path, text: str) -> None:
    """
    Turn the link at ``path`` to a file with ``text``, as the kubelet does.
    """
    data = path.parent / f"..{len(list(path.parent.iterdir()))}"
    data.mkdir()
    (data / "steps").write_text(text)
    (path.parent / "..new").symlink_to(data.name)
    (path.parent / "..new").rename(path.parent / "..data")


def test_the_file_is_followed_and_the_later_word_wins(place: Place, mounted: Path) -> None:
    """
    File over environment, order over file, file over order; what cannot be read changes nothing, and a sidecar that
    starts again goes on where the former was.
    """
    with place.sidecar(), Agent(place.socket) as agent:
        began = agent.register()
        place.post("/api/profile", steps="11")
        ordered = agent.receive()
        replaced(mounted, "12;13")
        replaced(mounted, "12-13\n")
        filed = agent.receive()
        place.post("/api/profile", steps="14")
        last = agent.receive()
    with place.sidecar(), Agent(place.socket) as agent:
        again = agent.register()

    assert isinstance(began, wire.Registered)
    assert isinstance(again, wire.Registered)
    assert "7" == began.selection
    assert [("11", "api"), ("12-13", "file"), ("14", "api")] == [
        (told.selection, told.source) for told in (ordered, filed, last) if isinstance(told, wire.Selected)
    ]
    assert "14" == again.selection


def test_a_file_that_cannot_be_read_is_told_to_every_process(place: Place, mounted: Path) -> None:
    """
    With the setting, the value and the reason; what the environment says holds until it can.
    """
    replaced(mounted, "5;6")
    with place.sidecar(), Agent(place.socket) as agent:
        registered = agent.register()
        replaced(mounted, "5-6")
        told = agent.receive()

    assert isinstance(registered, wire.Registered)
    assert "5,8-9" == registered.selection
    (warning,) = registered.warnings
    assert "STEPSCOPE_STEPS_FILE" in warning
    assert "'5;6' cannot be read" in warning
    assert isinstance(told, wire.Selected)
    assert "5-6" == told.selection
