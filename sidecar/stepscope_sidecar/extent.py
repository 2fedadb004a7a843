"""
Which steps a run has: what follows its last update is none of them once nobody works on it any more.

Used wherever steps are shown or counted, so that all of it says the same. While a run goes on its last step is one, as
nobody knows yet whether an update will end it.
"""

from stepscope import names
from stepscope_sidecar.reader import Reader


def steps_of(reader: Reader, *, over: bool) -> list[int]:
    """
    The steps of the run, in order; ``over``: none of its processes lives.

    A last one stays that was recorded, that an error has left, or that a process died in: somebody wants to see those.
    """
    windows = [*reader.windows(), *reader.elsewhere()]
    found = sorted({*reader.steps(), *(row.step for row in windows)})
    if not over:
        return found
    kept = {row.entered_step for row in reader.processes() if row.end_reason == names.Reason.PROCESS_LOST}
    kept |= {step for row in windows if row.opened_unix_ns for step in (row.step, row.last_step)}
    while found and found[-1] not in kept and not _whole(reader, found[-1]):
        found.pop()
    return found


def _whole(reader: Reader, step: int) -> bool:
    entered = reader.spans(step=step, name=names.RL_STEP_PROCESS)
    return any(not span.attributes.get(names.PARTIAL) for span in entered)
