"""
verl's own profiling and ours: one of them, never both.

Owns what becomes of ``global_profiler.steps``. verl's profilers are left alone where ours are off: this is not called
then. Where ours are on and nobody said which steps, verl's setting is the selection, and verl's profilers stay off.
"""

import os
from collections.abc import Sequence
from typing import Any

from stepscope import names
from stepscope.errors import ConfigurationError
from stepscope.integrations.verl.patching import logger
from stepscope.selection import Selection

STEPS = "global_profiler.steps"


def adopt(config: Any) -> bool:
    """
    Take ``global_profiler.steps`` of ``config`` over as the selection. Whether there was anything to take over.

    Raises:
        ConfigurationError: steps to record are set here and there, and two profilers can't record in one process; or
            they are no list of whole numbers, or can't be taken out of the configuration. Nothing is changed then.
    """
    if not _is_instrumented(config):
        return False
    profiler = _of(config, "global_profiler")
    steps = _steps(profiler)
    if not steps:
        return False
    for name in (names.STEPS, names.STEPS_FILE):
        if os.environ.get(name, "").strip():
            raise ConfigurationError(
                f"{STEPS}={steps} and {name}={os.environ[name]} are both set: verl's own profiling and "
                f"stepscope can't record in one process. Unset {name} and stepscope records the steps of "
                f"{STEPS}; set {STEPS}=null and it records those of its own setting; "
                f"set {names.DISABLED}=1 and verl's profiling is left alone"
            )
    never = sorted({step for step in steps if step <= 0})
    selection = ",".join(map(str, sorted({step for step in steps if step > 0})))
    try:
        Selection.parse(selection)
    except ConfigurationError as error:
        raise ConfigurationError(f"{STEPS}={steps}: {error}") from None
    continuous = bool(_read(profiler, "profile_continuous_steps"))
    _clear(profiler, steps, selection)
    # Last, after all that can fail: what is left of a start that failed must not be taken for a person's setting.
    os.environ[names.STEPS] = selection
    if continuous:
        os.environ.setdefault(names.CONTINUOUS, "1")
    said = f"; steps count from 1, so there is no step {', '.join(map(str, never))}" if never else ""
    logger.warning("%s=%s is the selection; verl's own profilers stay off%s", STEPS, steps, said)
    return True


def _steps(profiler: Any) -> list[int]:
    found = _read(profiler, "steps")
    if found is None:
        return []
    try:
        listed = list(found) if isinstance(found, Sequence) and not isinstance(found, (str, bytes)) else None
    except Exception as error:  # noqa: BLE001 - a part of the list that cannot be resolved
        raise _unreadable("steps", error) from None
    if listed is None or not all(type(step) is int for step in listed):
        raise ConfigurationError(
            f"{STEPS}={found!r} is not a list of whole numbers; for example {STEPS}=[2,5], or null for none"
        )
    return listed


def _clear(profiler: Any, steps: list[int], selection: str) -> None:
    try:
        if hasattr(profiler, "get"):
            profiler["steps"] = None
        else:
            profiler.steps = None
    except Exception as error:  # noqa: BLE001 - a configuration of whatever kind that is read-only
        raise ConfigurationError(
            f"{STEPS}={steps} can't be taken over, because the configuration can't be changed "
            f"({_line(error)}): set {STEPS}=null and {names.STEPS}={selection}"
        ) from None


def _read(profiler: Any, name: str) -> Any:
    try:
        return _of(profiler, name)
    except Exception as error:  # noqa: BLE001 - OmegaConf's errors, which are not imported here
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"global_profiler.{name} can't be read ({_line(error)}): write its value there, for example "
        f"{STEPS}=[2,5], or null"
    )


def _line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_instrumented(config: Any) -> bool:
    """
    Whether the trainer that ``config`` asks for is one of ours: V1, or fully_async.
    """
    return bool(_of(_of(config, "trainer"), "use_v1")) or _of(config, "async_training") is not None


def _of(config: Any, name: str) -> Any:
    # A DictConfig, which knows ``get``, or an object in its stead.
    if config is None:
        return None
    return config.get(name, None) if hasattr(config, "get") else getattr(config, name, None)
