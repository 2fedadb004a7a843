"""
The commands of the page on verl.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.test_docs import blocks, page
from tests.verl.running import DEADLINE, environment

ONLY_SHOW = " --cfg job"
"""Has verl's command line (hydra) say what it would run with, and run nothing: that takes accelerators and a model."""


def test_verls_command_line_takes_what_the_page_says(tmp_path: Path) -> None:
    """
    The page's command starts verl with the sidecar beside it, and verl knows the mode; what is installed here is left.
    """
    first = blocks(page("en", "verl.md"), "sh")[0]
    lines = [line for line in first.splitlines() if not line.startswith("pip install ")]
    assert "stepscope run -- python -m verl" in lines[-1]

    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines) + ONLY_SHOW],
        cwd=tmp_path,
        env=environment(Path("/tmp"), PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert "trainer_mode: separate_async" in done.stdout
    assert "recording steps 3,10-12" in done.stderr
