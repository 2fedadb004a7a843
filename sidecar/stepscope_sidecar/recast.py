"""
Windows and processes as the rows that keep them, and back: how a restarted sidecar takes them over.
"""

from stepscope.names import State
from stepscope_sidecar.labels import in_phases
from stepscope_sidecar.processes import Process
from stepscope_sidecar.rows import ProcessRow, WindowRow
from stepscope_sidecar.surroundings import alive
from stepscope_sidecar.windows import Window


def window_row(window: Window, *, run: str, attempt: str) -> WindowRow:
    """
    ``window`` as the store has it.
    """
    return WindowRow(
        window=window.window,
        run=run,
        attempt=attempt,
        node=window.node,
        step=window.step,
        param_version=window.param_version,
        version_at_close=window.version_at_close,
        role=window.role,
        rank=window.rank,
        pid=window.pid,
        process_start=window.process_start,
        tool=window.tool,
        level=window.level,
        level_fallback=window.level_fallback,
        state=window.state.value,
        reason=str(window.reason),
        detail=window.detail,
        complete=window.complete,
        incomplete_reason=window.incomplete_reason,
        incomplete_share=window.incomplete_share,
        artifact=window.artifact,
        folder=window.folder,
        bytes=window.bytes,
        sha256=window.sha256,
        trace_id=window.trace_id,
        span_id=window.span_id,
        asked_unix_ns=window.asked_unix_ns,
        opened_unix_ns=window.opened_unix_ns,
        closed_unix_ns=window.closed_unix_ns,
        stall_seconds=in_phases(window.stall),
        other={
            "forced": window.forced,
            "devices": list(window.devices),
            "beside": window.beside,
            "last_step": window.last_step,
            "also": [list(ids) for ids in window.also],
        },
    )


def window_of(row: WindowRow) -> Window:
    """
    The window in ``row``, as a restarted sidecar takes it over.
    """
    devices, also = row.other.get("devices"), row.other.get("also")
    return Window(
        window=row.window,
        step=row.step,
        param_version=row.param_version,
        role=row.role,
        rank=row.rank,
        pid=row.pid,
        process_start=row.process_start,
        node=row.node,
        tool=row.tool,
        level=row.level,
        level_fallback=row.level_fallback,
        folder=row.folder,
        devices=tuple(str(device) for device in devices) if isinstance(devices, list) else (),
        forced=bool(row.other.get("forced")),
        last_step=row.last_step if row.last_step > row.step else 0,
        also=tuple((str(ids[0]), str(ids[1])) for ids in also if isinstance(ids, list) and len(ids) == 2)
        if isinstance(also, list)
        else (),
        beside=str(row.other.get("beside") or ""),
        state=State(row.state),
        reason=row.reason,
        detail=row.detail,
        asked_unix_ns=row.asked_unix_ns,
        opened_unix_ns=row.opened_unix_ns,
        closed_unix_ns=row.closed_unix_ns,
        version_at_close=row.version_at_close,
        trace_id=row.trace_id,
        span_id=row.span_id,
        stall=row.stall_seconds,
        complete=row.complete,
        incomplete_reason=row.incomplete_reason,
        incomplete_share=row.incomplete_share,
        artifact=row.artifact,
        bytes=row.bytes,
        sha256=row.sha256,
    )


def process_row(process: Process, *, run: str, attempt: str) -> ProcessRow:
    """
    ``process`` as the store has it.
    """
    return ProcessRow(
        pid=process.pid,
        process_start=process.process_start,
        node=process.node,
        role=process.role,
        rank=process.rank,
        run=run,
        attempt=attempt,
        world_size=process.world_size,
        param_version=process.param_version,
        resumed_from=process.resumed_from,
        total_steps=process.total_steps,
        entered_step=process.entered_step,
        closed_step=process.closed_step,
        device_ids=list(process.devices),
        tools=dict(process.tools),
        environment=dict(process.environment),
        registered_unix_ns=process.registered_unix_ns,
        ended_unix_ns=process.ended_unix_ns,
        end_reason=str(process.end_reason),
    )


def process_of(row: ProcessRow) -> Process:
    """
    The process in ``row``, as a restarted sidecar takes it over. Which steps it was expected to record is not kept.
    """
    return Process(
        pid=row.pid,
        process_start=row.process_start,
        node=row.node,
        role=row.role,
        rank=row.rank,
        watch_pid=row.pid if alive(row.pid, row.process_start) else 0,
        world_size=row.world_size,
        param_version=row.param_version,
        resumed_from=row.resumed_from,
        total_steps=row.total_steps,
        devices=tuple(row.device_ids),
        tools=dict(row.tools),
        environment=dict(row.environment),
        registered_unix_ns=row.registered_unix_ns,
        ended_unix_ns=row.ended_unix_ns,
        end_reason=row.end_reason,
        entered_step=row.entered_step,
        closed_step=row.closed_step,
    )
