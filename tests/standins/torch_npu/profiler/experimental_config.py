"""
The part of a profile's configuration that is Ascend's own.
"""

from ..signatures import real  # noqa: TID252 - checked under one name, imported by another


class _ExperimentalConfig:
    """
    Keeps what it is given under the names that the real one writes into ``profiler_info``.
    """

    @real("torch_npu.profiler.experimental_config._ExperimentalConfig.__init__")
    def __init__(self, *, export_type: object, **given: object) -> None:
        self._export_type = export_type if isinstance(export_type, list) else [export_type]
        for name, value in given.items():
            setattr(self, f"_{name}", value)
