"""
Names that torch writes into a trace as they are, although they make it no JSON.
"""

from pathlib import Path

import pytest

from stepscope_sidecar.artifacts import InvalidArtifact, mending
from stepscope_sidecar.artifacts.mending import mend
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import finalised


def function(name: str) -> str:
    return traces.EVENT % ("python_function", name, traces.PID, traces.PID, "5107424936000.000", "7.500", 0, 0)


@pytest.mark.parametrize("name", ['type_checkers.py(0): "9"', 'say "hi", it said', "C:\\x(1): f"])
def test_a_name_that_is_no_json_costs_its_name_alone(tmp_path: Path, name: str) -> None:
    """
    The recording is whole; quotes and backslashes of that name became others, and nothing is left beside the file.
    """
    found = finalised(tmp_path, traces.trace(20, extra=(function(name), function("plain"))))

    kept = [event["name"] for event in traces.read(found.path)["traceEvents"]][-2:]
    assert [name.replace('"', "'").replace("\\", "/"), "plain"] == kept
    assert ["recording.json.gz"] == [path.name for path in tmp_path.iterdir()]


def test_what_is_broken_elsewhere_stays_broken(tmp_path: Path) -> None:
    """
    Only names are mended: a recording that was cut off says so, and is left as it was.
    """
    data = traces.trace(20, extra=(function('a "name"'),))[:-200]

    with pytest.raises(InvalidArtifact):
        finalised(tmp_path, data)

    assert {"recording.json": data} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_a_line_with_several_members_is_left_alone(tmp_path: Path) -> None:
    """
    Its quotes are JSON's own.
    """
    text = b'{"name": "a", "cat": "b",\n    "name": "process_name", "ph": "M",\n    "name": "plain",\n}'
    (tmp_path / "raw").write_bytes(text)

    count = mend(tmp_path / "raw", tmp_path / "mended")

    assert 0 == count
    assert not (tmp_path / "mended").exists()


def test_a_name_that_is_written_as_it_should_be_is_left_alone(tmp_path: Path) -> None:
    """
    Also beside one that is not.
    """
    found = finalised(tmp_path, traces.trace(20, extra=(function('say \\"hi\\"'), function('a "b"'))))

    kept = [event["name"] for event in traces.read(found.path)["traceEvents"]][-2:]
    assert ['say "hi"', "a 'b'"] == kept


def test_a_file_of_endless_lines_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It is looked through in parts, and nothing of it is mended.
    """
    monkeypatch.setattr(mending, "MAX_LINE", 64)
    (tmp_path / "raw").write_bytes(b'    "name": "' + b'"' * 1000 + b'",\n')

    assert 0 == mend(tmp_path / "raw", tmp_path / "mended")
