"""
The process that a tool records: which it is, when it ends, and what forbids to look into it.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope import ids
from stepscope_sidecar.attach import target
from stepscope_sidecar.attach.target import Target
from stepscope_sidecar.errors import AttachError

from .attaching import somebody

AS_NOBODY = """
import os, sys
from stepscope_sidecar.attach import target
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(target.obstacle(int(sys.argv[1])))
"""


def test_its_end_is_noticed_by_everybody_who_waits() -> None:
    """
    Before it has been waited for by its parent, too.
    """

    async def work() -> None:
        with somebody() as process:
            found = Target.open(process.pid, start=ids.process_start(process.pid))
            try:
                waiting = [asyncio.create_task(found.end()) for _ in range(2)]
                before, _ = await asyncio.wait(waiting, timeout=0)
                process.kill()
                await asyncio.wait_for(asyncio.gather(*waiting), 30)

                assert set() == before
                assert await found.ends_soon()
            finally:
                found.close()

    asyncio.run(work())


def test_a_process_that_has_gone_or_is_another_is_an_error() -> None:
    """
    The handle is taken first: nothing can come in between.
    """
    with somebody() as process:
        start = ids.process_start(process.pid)
        with pytest.raises(AttachError, match="the pid was used again"):
            Target.open(process.pid, start=start + 1)
    with pytest.raises(AttachError, match="there is no such process"):
        Target.open(process.pid, start=start)


def test_nothing_is_in_the_way_to_a_child_of_our_own() -> None:
    """
    And a process that is not there is named.
    """
    with somebody() as process:
        assert "" == target.obstacle(process.pid)
    assert f"pid {process.pid}: there is no such process" == target.obstacle(process.pid)


def test_a_process_of_another_user_is_out_of_reach() -> None:
    """
    Without the capability for it: both users are named.
    """
    other = os.getpid() if os.geteuid() == 0 else 1
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(other)], capture_output=True, text=True, check=True, timeout=60
    )
    me = 65534 if os.geteuid() == 0 else os.geteuid()

    assert (
        f"pid {other}: it belongs to user 0, and the sidecar runs as user {me} without CAP_SYS_PTRACE\n" == done.stdout
    )


@pytest.mark.parametrize(
    ("scope", "capable", "restricted"),
    [
        ("0", False, False),
        ("1", True, False),
        ("1", False, True),
        ("2", False, True),
        ("2", True, False),
        ("3", True, True),
    ],
)
def test_what_yama_forbids_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, capable: bool, restricted: bool
) -> None:
    """
    Where there is no Yama, it forbids nothing.
    """
    yama = tmp_path / "ptrace_scope"
    monkeypatch.setattr(target, "YAMA", yama)
    monkeypatch.setattr(target, "may_trace", lambda: capable)

    assert "" == target.restriction()
    yama.write_text(f"{scope}\n")
    assert restricted == target.restriction().startswith(f"{yama} is {scope}: ")
    assert restricted == ("CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)" in target.restriction())
