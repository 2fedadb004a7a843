"""
The control socket: who connects to it and says nothing, or what is no registration.
"""

import asyncio
import logging
from pathlib import Path

import pytest

from stepscope_sidecar import control
from stepscope_sidecar.control import Control

from .rig import Rig
from .stored import WAIT


@pytest.mark.parametrize(
    ("sent", "limit", "level"),
    [(b"", 0.01, logging.INFO), (b"half a li", 0.01, logging.INFO), (b"{}\n", WAIT, logging.WARNING)],
)
def test_who_says_nothing_is_no_reason_to_be_alarmed(
    rig: Rig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    limit: float,
    level: int,
) -> None:
    """
    A connection on which nothing came is closed with a remark, one with something else than a registration warned of.
    """
    monkeypatch.setattr(control, "REGISTER_LIMIT", limit)

    async def probe() -> bytes:
        served = Control(rig.controller)
        await served.start(tmp_path / "c.sock")
        try:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "c.sock")
            writer.write(sent)
            answer = await asyncio.wait_for(reader.read(), WAIT)
            writer.close()
            await writer.wait_closed()
        finally:
            await served.close()
        return answer

    with caplog.at_level(logging.INFO, logger=control.LOG.name):
        answer = asyncio.run(probe())

    assert b"" == answer
    assert [level] == [record.levelno for record in caplog.records if "closing" in record.message]
