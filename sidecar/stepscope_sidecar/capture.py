"""
The sidecar's own spans about a window: ``profile.opened`` at once, ``profile.capture`` when it is final.

Pure. Their ids follow from the window's, so that a sidecar that died in between tells of the same span again.
"""

import hashlib
from collections.abc import Mapping

from stepscope import names
from stepscope_sidecar.rows import OwnSpan
from stepscope_sidecar.windows import Window

STALL: Mapping[str, names.Name] = {
    "open": names.STALL_OPEN,
    "start": names.STALL_START,
    "stop": names.STALL_STOP,
    "export": names.STALL_EXPORT,
}
"""The attribute of each phase of stall."""


def recorded(window: Window) -> bool:
    """
    Whether there is a recording, or was one: then the trace has a span that it belongs to.
    """
    return bool(window.opened_unix_ns and window.trace_id and window.span_id)


def gone_on(window: Window, *, unix_ns: int) -> OwnSpan:
    """
    The same in the trace of the step that it has gone on into by now, where nothing else would show it.
    """
    trace_id, span_id = window.also[-1]
    return OwnSpan(
        name=names.PROFILE_OPENED,
        trace_id=trace_id,
        span_id=_span_id(f"opened-{window.last_step}", window),
        parent_span_id=span_id,
        start_unix_ns=unix_ns,
        end_unix_ns=unix_ns,
        attributes={**_common(window), names.PARAM_VERSION: window.last_step - 1, names.STEP: window.last_step},
        links=((window.trace_id, window.span_id),),
    )


def opened(window: Window) -> OwnSpan:
    """
    The zero-length span that shows a window in progress.
    """
    return OwnSpan(
        name=names.PROFILE_OPENED,
        trace_id=window.trace_id,
        span_id=_span_id("opened", window),
        parent_span_id=window.span_id,
        start_unix_ns=window.opened_unix_ns,
        end_unix_ns=window.opened_unix_ns,
        attributes=_common(window),
    )


def capture(window: Window, *, url: str) -> OwnSpan:
    """
    The span that stands for a final window in the trace: child of the span that opened it, and linked to it.

    Args:
        window: a window that recorded and is final.
        url: base address of the sidecar's pages.
    """
    attributes = _common(window)
    attributes[names.WINDOW_STATE] = window.state.value
    attributes[names.WINDOW_REASON] = window.reason
    if window.version_at_close is not None:
        attributes[names.VERSION_AT_CLOSE] = window.version_at_close
    if window.complete is not None:
        attributes[names.COMPLETE] = window.complete
    if window.incomplete_reason:
        attributes[names.INCOMPLETE_REASON] = window.incomplete_reason
    if window.artifact:
        attributes[names.ARTIFACT_URI] = f"stepscope:{window.artifact}"
        attributes[names.ARTIFACT_URL] = f"{url}/artifacts/{window.artifact}"
        attributes[names.ARTIFACT_BYTES] = window.bytes
        attributes[names.ARTIFACT_SHA256] = window.sha256
    attributes.update({STALL[phase]: seconds for phase, seconds in window.stall.items() if phase in STALL})
    return OwnSpan(
        name=names.PROFILE_CAPTURE,
        trace_id=window.trace_id,
        span_id=_span_id("capture", window),
        parent_span_id=window.span_id,
        start_unix_ns=window.opened_unix_ns,
        end_unix_ns=max(window.opened_unix_ns, window.closed_unix_ns),
        attributes=attributes,
        links=((window.trace_id, window.span_id), *window.also),
        error="" if window.state is names.State.READY else f"{window.state}: {window.reason}",
    )


def _common(window: Window) -> dict[str, str | int | float | bool]:
    attributes: dict[str, str | int | float | bool] = {
        names.PARAM_VERSION: window.param_version,
        names.STEP: window.step,
        names.ROLE: window.role,
        names.RANK: window.rank,
        names.WINDOW_ID: window.window,
        names.TOOL: window.tool,
        names.LEVEL: window.level,
    }
    if window.last_step > window.step:
        attributes[names.LAST_STEP] = window.last_step
    if window.level_fallback:
        attributes[names.LEVEL_FALLBACK] = window.level_fallback
    return attributes


def _span_id(kind: str, window: Window) -> str:
    return hashlib.sha256(f"{kind}/{window.window}".encode()).digest()[:8].hex()
