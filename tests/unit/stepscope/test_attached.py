"""
Tools that the sidecar runs against this process: the process has nothing to do.
"""

from pathlib import Path

import pytest

from stepscope.profilers import Armed, Registry, Request, is_sync
from stepscope.profilers.attached import LEAVES


@pytest.mark.parametrize(("tool", "artifact"), [("py-spy", "recording.speedscope.json"), ("msprof", "msprof")])
def test_it_does_nothing_and_names_what_will_be_there(tool: str, artifact: str, tmp_path: Path) -> None:
    """
    So that the close record, which outlives a sidecar, leads to the recording.
    """
    profiler = Registry().find(tool)
    assert profiler is not None
    assert is_sync(profiler)
    request = Request(window="w", level="", folder=tmp_path)

    assert Armed(level="", marks=False) == profiler.start(request)
    assert not profiler.foreign()
    assert artifact == profiler.stop(request).artifact == LEAVES[tool]
    assert [] == list(tmp_path.iterdir())


def test_a_process_offers_them_and_leaves_it_to_the_sidecar_whether_they_are_here() -> None:
    """
    It could not know.
    """
    tools = Registry().tools()

    assert ("", "") == (tools["py-spy"], tools["msprof"])
