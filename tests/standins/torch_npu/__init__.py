"""
A stand-in for ``torch_npu``: its profiler with the real signatures, without CANN, without a device.

It does what the real Python code does around a session (folders, files, one path for the whole process, exceptions
printed and swallowed, a stop when collected) and records nothing: there is nothing to record. What it stands for is
the way a driver goes, not what the driver finds on a device.
"""

from . import npu as npu

__version__ = "2.13.0+standin"
