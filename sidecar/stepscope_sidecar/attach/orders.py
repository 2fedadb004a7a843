"""
A person's order to record a process that knows nothing of stepscope along with one that is registered.

Owns what such an order has to say, and the answer; who may give it is the API's, what follows is ``attachments``'.
"""

from collections.abc import Mapping

from stepscope import ids, names
from stepscope.names import Reason, Tool
from stepscope_sidecar.attach.attachments import Attachments
from stepscope_sidecar.attach.companions import Companion
from stepscope_sidecar.controller import Controller
from stepscope_sidecar.errors import AttachError


class Orders:
    """
    Takes orders for ``attachments``. Called on the event loop; answers at once.
    """

    def __init__(self, controller: Controller, attachments: Attachments) -> None:
        """
        Ask ``controller`` who is registered.
        """
        self._controller = controller
        self._attachments = attachments

    def order(self, body: Mapping[str, object]) -> dict[str, object]:
        """
        Attach to a process, or with a true ``detach`` end that.

        Raises:
            AttachError: that cannot be; the message says why.
        """
        return self.detach(body) if body.get("detach") is True else self.attach(body)

    def attach(self, body: Mapping[str, object]) -> dict[str, object]:
        """
        Record process ``pid``, which began at ``process_start``, by ``tool`` along with ``with`` (ROLE-RANK).

        Raises:
            AttachError: that cannot be; the message says why.
        """
        pid, tool = _pid(body), body.get("tool", Tool.PY_SPY.value)
        if not isinstance(tool, str):
            raise _unclear(f"tool={tool!r}: a tool is a name such as py-spy")
        role, rank = _place(body.get("with"))
        processes, plan = self._controller.processes.alive(), self._controller.plan
        named = [process for process in processes if (process.role, process.rank) == (role, rank)]
        if not named or all(process.register_only for process in named):
            able = sorted(f"{process.role}-{process.rank}" for process in processes if not process.register_only)
            why = f"no {role}-{rank} is registered with this sidecar"
            if named:
                why = f"{role}-{rank} has no steps (register_only), so that no window opens in it; name one that has"
            raise _unclear(f"{why}; there is {', '.join(able) or 'nobody'}")
        if plan.tool(role) == tool:
            raise _unclear(f"{tool} records {role} itself, and there is one window per step, rank and tool")
        start = body.get("process_start") or ids.process_start(pid)
        if not isinstance(start, int):
            raise _unclear(f"process_start={start!r} is no number of clock ticks")
        known = any(pid in {process.pid, process.watch_pid} for process in processes)
        leased = self._attachments.leased(tool, pid=pid, told=_devices(body))
        companion = Companion(pid=pid, process_start=start, role=role, rank=rank, tool=tool, devices=leased)
        self._attachments.attach(companion, known=known)
        warnings = []
        if not plan.ranks.holds(role=role, rank=rank):
            warnings.append(
                f"rank {rank} of {role} is not selected ({names.RANKS}={plan.texts[names.RANKS] or '0'}): no window "
                f"opens in it, and pid {pid} is not recorded; name a rank that is, or start the run with {role}={rank}"
                " in that setting"
            )
        shared = {*leased} & {device for process in named for device in process.devices}
        if shared:
            warnings.append(
                f"{role}-{rank} works on {', '.join(sorted(shared))} too, and its own window takes it: those of pid "
                f"{pid} are denied as {Reason.BUSY_DEVICE}; name a process on another device"
            )
        return {
            **_shown(companion),
            "selection": plan.selection.text,
            "stopped": plan.stopped,
            "warnings": warnings,
        }

    def detach(self, body: Mapping[str, object]) -> dict[str, object]:
        """
        Record process ``pid`` no more.

        Raises:
            AttachError: it is not recorded so; the message says which are.
        """
        return _shown(self._attachments.detach(_pid(body)))

    def attached(self) -> list[dict[str, object]]:
        """
        The processes that are recorded so.
        """
        return [_shown(companion) for companion in self._attachments.companions.all()]


def _pid(body: Mapping[str, object]) -> int:
    pid = body.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid < 1:
        raise _unclear(f"pid={pid!r}: a pid is a number from 1")
    return pid


def _devices(body: Mapping[str, object]) -> tuple[str, ...]:
    found = body.get("devices", [])
    if not isinstance(found, list) or not all(isinstance(device, str) and device for device in found):
        raise _unclear(f"devices={found!r}: a list of names, as init(device_ids=...) has them")
    return tuple(found)


def _place(text: object) -> tuple[str, int]:
    role, _, rank = str(text).rpartition("-")
    if not isinstance(text, str) or not role or not rank.isdecimal():
        raise _unclear(f"with={text!r} is no ROLE-RANK; for example trainer-0")
    return role, int(rank)


def _shown(companion: Companion) -> dict[str, object]:
    return {"pid": companion.pid, "with": f"{companion.role}-{companion.rank}", "tool": companion.tool}


def _unclear(message: str) -> AttachError:
    return AttachError(message, reason=Reason.TOOL_UNAVAILABLE)
