"""
What the tasks on an Ascend device are, by the type that CANN gives them.

Owns the names. They differ between releases, and a type that is not listed counts as a kernel, which is said.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from stepscope_sidecar.traces.trace import NONE, Ints, Kind, Mask

CORES = ("AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE", "DSA", "Other", "N/A")
"""``Other`` is how a release of 2023 calls all that runs on its cores, ``N/A`` how level 0 does."""

KERNELS = ("KERNEL_AICORE", "KERNEL_AIVEC", "KERNEL_AICPU", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV", "AICPU")
"""As recent databases call them."""

COMPUTE = frozenset((*CORES, *KERNELS))

COPIES = frozenset(("SDMA", "SDMA_SQE", "PCIE_DMA_SQE", "MEMCPY_ASYNC", "RDMA"))

EVENTS = ("EVENT_RECORD", "EVENT_RECORD_SQE", "EVENT_WAIT", "EVENT_WAIT_SQE", "BARRIER_SQE", "CMO_SQE")
NOTICES = ("NOTIFY_RECORD_SQE", "NOTIFY_WAIT_SQE", "Notify_Record", "Notify_Wait", "Write_Value", "WRITE_VALUE_SQE")
WAITING = frozenset((*EVENTS, *NOTICES))

NOTHING = frozenset(("PLACE_HOLDER_SQE", "PROFILING_ENABLE", "PROFILING_DISABLE", "INVALID_TYPE"))
"""Tasks that do nothing; the switching of the profiler is one."""


def kind(task_type: str) -> Kind:
    """
    What a task of this type is.
    """
    if task_type in COPIES:
        return Kind.MEMCPY
    if task_type.replace(" ", "_") in WAITING:
        return Kind.SYNC
    return Kind.OTHER if task_type in NOTHING else Kind.KERNEL


def guesses(task_types: Iterable[str]) -> list[str]:
    """
    What had to be guessed of these types, in words.
    """
    known = COMPUTE | COPIES | WAITING | NOTHING
    strange = sorted(one for one in set(task_types) if one.replace(" ", "_") not in known)
    return [f"task types that are not known count as kernels: {', '.join(strange[:10])}"] if strange else []


def parts(kinds: npt.NDArray[np.int8], correlation: Ints, on_device: Mask) -> Mask:
    """
    Which events are copies that a collective is made of; the collective has an event of its own.
    """
    ids = correlation[(kinds == Kind.COMMUNICATION) & (correlation != NONE)]
    found: Mask = on_device & (kinds == Kind.MEMCPY) & np.isin(correlation, ids)
    return found
