"""
What is read from handles: of Ray's own classes where Ray is there, which needs no cluster, and of what looks like them.
"""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.integrations import handles
from stepscope.integrations import ray as stepscope_ray


class Untraced:
    """
    An actor's class.
    """

    def run(self, **config: Any) -> dict[str, Any]:
        """
        Takes anything.
        """
        return config


@stepscope_ray.traced
class Traced(Untraced):
    """
    Another, which has the first one's method.
    """

    def own(self, **config: Any) -> dict[str, Any]:
        """
        Takes anything, and a carrier.
        """
        return config


def untraced(**config: Any) -> dict[str, Any]:
    """
    A task.
    """
    return config


traced = stepscope_ray.traced(untraced)
OPTIONS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda handle: handle,
    "with options": lambda handle: handle.options(name="a"),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_what_is_known_of_tasks_and_classes(options: str) -> None:
    """
    Also of what ``.options(…)`` has made of them.
    """
    ray = pytest.importorskip("ray")
    found = [OPTIONS[options](ray.remote(target)) for target in (traced, untraced, Traced, Untraced)]

    assert [True, False, True, False] == [handles.takes(handle, stepscope_ray.CARRIER) for handle in found]
    assert ["Traced", "Untraced"] == [handles.name(handle) for handle in found[2:]]
    assert [f"{__name__}.untraced"] * 2 == [handles.name(handle) for handle in found[:2]]


@pytest.mark.parametrize("options", OPTIONS)
def test_what_is_known_of_methods(options: str) -> None:
    """
    A handle as an actor has it, and what its class is called: not which actor it is.
    """
    actors = pytest.importorskip("ray.actor")

    def method(cls: type, name: str) -> Any:
        actor = SimpleNamespace(_ray_actor_creation_function_descriptor=SimpleNamespace(class_name=cls.__name__))
        given = dict.fromkeys(inspect.signature(actors.ActorMethod).parameters)
        signature = list(inspect.signature(getattr(cls, name)).parameters.values())[1:]
        return OPTIONS[options](
            actors.ActorMethod(**{**given, "actor": actor, "method_name": name, "signature": signature})
        )

    assert handles.takes(method(Traced, "own"), stepscope_ray.CARRIER)
    assert not handles.takes(method(Untraced, "run"), stepscope_ray.CARRIER)
    assert ["Traced.own", "Untraced.run"] == [
        handles.name(method(cls, name)) for cls, name in ((Traced, "own"), (Untraced, "run"))
    ]


def test_what_cannot_be_known_takes_nothing() -> None:
    """
    A handle that looks like nothing known, or whose insides are not what they seem.
    """
    strange = [SimpleNamespace(remote=len), SimpleNamespace(remote=len, _signature=3), SimpleNamespace(remote=len)]

    assert [False] * 3 == [handles.takes(handle, "x") for handle in strange]
    assert ["SimpleNamespace"] * 3 == [handles.name(handle) for handle in strange]
