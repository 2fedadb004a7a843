"""
Devices, of which there is none but in name, and marks.
"""

from . import mstx as _mstx

mstx = _mstx.mstx

available = True
"""Whether a device is said to be there; tests change it."""


def is_available() -> bool:
    """
    Whether there is a device.
    """
    return available
