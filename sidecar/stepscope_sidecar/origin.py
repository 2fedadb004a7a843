"""
What a window is when it begins: its name, its folder, and whose it is.

Pure but for the random part of a name. Two windows never share a name or a folder (W12). What becomes of them is
``recordings``' and ``windows``'.
"""

import re
import secrets
from dataclasses import dataclass, replace

from stepscope import wire
from stepscope_sidecar.plan import Plan
from stepscope_sidecar.processes import Process
from stepscope_sidecar.windows import Window

FOLDER = re.compile(r"step-(\d{1,12})/([^/]+)-(\d+)-(\d+)/([^/]+)")
"""A window's folder below the attempt's: step, role, rank, pid, tool."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """
    This node and attempt; ``folder`` is the attempt's, relative to STEPSCOPE_DIR.
    """

    node: str
    folder: str

    def asked(self, process: Process, message: wire.Open | wire.Missed, *, plan: Plan, unix_ns: int) -> Window:
        """
        A window that ``process`` asks for, or would have asked for.
        """
        tool = plan.tool(process.role)
        name = f"{message.step:06d}-{_who(process)}-{tool}-{secrets.token_hex(3)}"
        window = self._window(process, message, name=name, tool=tool, level=plan.level)
        return replace(window, asked_unix_ns=unix_ns)

    def reopened(self, process: Process, item: wire.OpenWindow) -> Window:
        """
        A window that ``process`` says it has open.
        """
        return replace(
            self._window(process, item, name=item.window, tool=item.tool, level=item.level),
            last_step=item.last_step,
            level_fallback=item.level_fallback,
            opened_unix_ns=item.opened_unix_ns,
            trace_id=item.trace_id,
            span_id=item.span_id,
            stall=item.stall,
        )

    def _window(
        self,
        process: Process,
        message: wire.Open | wire.Missed | wire.OpenWindow,
        *,
        name: str,
        tool: str,
        level: str,
    ) -> Window:
        return Window(
            window=name,
            step=message.step,
            param_version=message.param_version,
            role=process.role,
            rank=process.rank,
            pid=process.pid,
            process_start=process.process_start,
            node=self.node,
            tool=tool,
            level=level,
            folder=f"{self.folder}/step-{message.step:06d}/{_who(process)}/{tool}",
            devices=process.devices,
        )


def _who(process: Process) -> str:
    return f"{process.role}-{process.rank}-{process.pid}"
