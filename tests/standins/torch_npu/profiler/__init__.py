"""
The profiler's public names, as the real ``torch_npu.profiler`` has them.
"""

from enum import Enum

from ..signatures import constants  # noqa: TID252 - checked under one name, imported by another
from .experimental_config import _ExperimentalConfig as _ExperimentalConfig
from .profiler import profile as profile
from .profiler import tensorboard_trace_handler as tensorboard_trace_handler

ProfilerLevel = constants("ProfilerLevel")
AiCMetrics = constants("AiCMetrics")
ExportType = constants("ExportType")


class ProfilerActivity(Enum):
    """
    What can be recorded. The real one is of C++.
    """

    CPU = 0
    NPU = 1
