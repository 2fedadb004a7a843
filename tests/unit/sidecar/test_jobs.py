"""
Jobs on their way to the finalising child.
"""

from pathlib import Path

import pytest

from stepscope.errors import WireError
from stepscope_sidecar import jobs
from tests.unit.sidecar import traces
from tests.unit.sidecar.finalising import job


def test_a_job_survives_the_way_to_the_child(tmp_path: Path) -> None:
    """
    What the child reads is the job that was submitted; anything else is refused.
    """
    one = job(tmp_path, continued=[traces.continued(1, 2)], incomplete="capped")

    assert one == jobs.decode(jobs.encode(one))
    for nonsense in (b"", b"{}", b"[]", b'{"folder": 1, "closed": "{}", "pid": 1, "world_size": null}'):
        with pytest.raises(WireError):
            jobs.decode(nonsense)
