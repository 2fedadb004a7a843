"""
The stand-in for torch_npu: its signatures are the real wheel's, and it holds to them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.standins import signatures

STANDINS = Path(signatures.__file__).parent
WHEEL = "STEPSCOPE_TEST_TORCH_NPU_WHEEL"

REFUSED = """
from torch_npu import profiler

for call in (
    lambda: profiler._ExperimentalConfig(analyze_flag=False),
    lambda: profiler.profile(with_stacks=True),
    lambda: profiler.profile([profiler.ProfilerActivity.NPU]),
):
    try:
        call()
    except TypeError as error:
        print(error)
"""


def test_it_refuses_what_the_real_one_would() -> None:
    """
    An argument that the wheel's signature does not have, or one given by place that it wants by name, fails.
    """
    done = subprocess.run(
        [sys.executable, "-c", REFUSED],
        env={**os.environ, "PYTHONPATH": str(STANDINS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert [
        "got an unexpected keyword argument 'analyze_flag'",
        "got an unexpected keyword argument 'with_stacks'",
        "too many positional arguments",
    ] == done.stdout.splitlines()


@pytest.mark.skipif(WHEEL not in os.environ, reason=f"{WHEEL} does not name the wheel of torch_npu 2.13.0")
def test_the_signatures_are_those_of_the_wheel() -> None:
    """
    What the stand-in takes for real is what the wheel says.
    """
    wheel = signatures.facts(Path(os.environ[WHEEL]))
    kept = json.loads((STANDINS / "torch_npu-2.13.0.json").read_text(encoding="utf-8"))

    assert kept == wheel


def test_what_the_driver_relies_on_is_in_the_wheel() -> None:
    """
    Attributes that are not promised are there all the same, and what swallows exceptions can be taken off.
    """
    kept = json.loads((STANDINS / "torch_npu-2.13.0.json").read_text(encoding="utf-8"))

    assert kept["unwraps"]
    assert sorted(path for paths in signatures.ATTRIBUTES.values() for path in paths) == kept["attributes"]
