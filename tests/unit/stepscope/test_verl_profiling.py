"""
What becomes of verl's ``global_profiler.steps``: the selection, or an error that says what to write; nothing between.

The configurations are plain dictionaries here; verl's own, of OmegaConf, are tried in ``tests/verl``.
"""

import os
from collections.abc import Iterator
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from stepscope.errors import ConfigurationError
from stepscope.integrations.verl import profiling


class Unresolved(dict[str, Any]):
    """
    Stands in for a section of OmegaConf's with an interpolation that leads nowhere, below ``name``.
    """

    name = "steps"

    def get(self, key: str, default: Any = None) -> Any:
        """
        Raise where OmegaConf does.
        """
        if key == self.name:
            raise KeyError("Interpolation key 'nope' not found\n    full_key: global_profiler.steps")
        return super().get(key, default)


class Late(list[int]):
    """
    A list of which one step is such an interpolation.
    """

    def __iter__(self) -> Iterator[int]:
        """
        Raise as the list is read.
        """
        raise KeyError("Interpolation key 'nope' not found")


class Continuous(Unresolved):
    """
    The same for another key.
    """

    name = "profile_continuous_steps"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    No step is set, before and after.
    """
    for name in ("STEPSCOPE_STEPS", "STEPSCOPE_STEPS_FILE", "STEPSCOPE_CONTINUOUS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def config(section: Any, **trainer: Any) -> dict[str, Any]:
    """
    Of a V1 trainer.
    """
    return {"trainer": {"use_v1": True, **trainer}, "global_profiler": section}


@pytest.mark.parametrize(
    ("steps", "selection"), [([2, 5], "2,5"), ((5, 2, 2), "2,5"), ([-1, 0, 3], "3"), ([], None), (None, None)]
)
def test_a_list_of_steps_is_the_selection(steps: object, selection: str | None) -> None:
    """
    Verl's own profilers stay off then; no steps are no selection.
    """
    section = {"steps": steps, "profile_continuous_steps": True}

    assert (selection is not None) is profiling.adopt(config(section))
    assert selection == os.environ.get("STEPSCOPE_STEPS")
    assert (None if selection else steps) == section["steps"]
    assert ("1" if selection else None) == os.environ.get("STEPSCOPE_CONTINUOUS")


def test_an_object_in_place_of_a_section_will_do() -> None:
    """
    Its attribute is what is taken over.
    """
    section = SimpleNamespace(steps=[4])

    assert profiling.adopt(SimpleNamespace(trainer=SimpleNamespace(use_v1=True), global_profiler=section))
    assert (None, "4") == (section.steps, os.environ["STEPSCOPE_STEPS"])


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"steps": 5}, r"steps=5 is not a list of whole numbers; for example global_profiler\.steps=\[2,5\], or null"),
        ({"steps": "3,5"}, r"steps='3,5' is not a list"),
        ({"steps": "[1,2]"}, r"steps='\[1,2\]' is not a list"),
        ({"steps": ["a"]}, r"steps=\['a'\] is not a list"),
        ({"steps": [None]}, r"steps=\[None\] is not a list"),
        ({"steps": [1.5]}, r"steps=\[1\.5\] is not a list"),
        ({"steps": [True]}, r"steps=\[True\] is not a list"),
        ({"steps": {"a": 1}}, "is not a list"),
        ({"steps": 0}, "steps=0 is not a list"),
        ({"steps": [10**30]}, rf"steps=\[{10**30}\]: "),
        (Unresolved(), r"steps can't be read \(.*nope.*\): write its value there"),
        ({"steps": Late([1])}, r"steps can't be read \(.*nope"),
        (Continuous(steps=[1]), r"profile_continuous_steps can't be read"),
        (MappingProxyType({"steps": [3, 2]}), "can't be changed .*global_profiler.steps=null and STEPSCOPE_STEPS=2,3"),
    ],
)
def test_what_cannot_be_taken_over_is_an_error_and_changes_nothing(section: Any, said: str) -> None:
    """
    The message has the value, what is wrong with it, and what to write; the next start is not told of steps by it.
    """
    before = repr(section)
    with pytest.raises(ConfigurationError, match=r"^global_profiler\..*" + said) as raised:
        profiling.adopt(config(section))

    assert "\n" not in str(raised.value)
    assert before == repr(section)
    assert [] == [name for name in ("STEPSCOPE_STEPS", "STEPSCOPE_CONTINUOUS") if name in os.environ]


def test_a_trainer_that_is_not_ours_is_left_to_verl() -> None:
    """
    Whatever it says of its profiler.
    """
    assert not profiling.adopt(config({"steps": "all"}, use_v1=False))
    assert not profiling.adopt(None)
