"""
Calls that carry their caller's context, with what Ray does to a method imitated: a signature checked, a call later.
"""

import asyncio
import inspect
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from stepscope import names, registration
from stepscope.errors import ConfigurationError
from stepscope.integrations import ray
from stepscope.testing import capture_spans


class Remote:
    """
    Stands in for a method's handle in Ray: checks the arguments as Ray does, and runs the call outside of any span.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """
        Call it.
        """
        inspect.signature(inspect.unwrap(self._function)).bind(*args, **kwargs)
        with stepscope.attached(None):
            return self._function(*args, **kwargs)


@ray.traced
def work(amount: int) -> int:
    with stepscope.span("work"):
        return amount + 1


@ray.traced
async def awaited(amount: int, **more: int) -> int:
    with stepscope.span("work"):
        return amount + len(more)


@ray.traced
def streamed(amount: int) -> Iterator[int]:
    for number in range(amount):
        with stepscope.span("work"):
            yield number


@ray.traced
async def astreamed(amount: int) -> AsyncIterator[int]:
    for number in range(amount):
        with stepscope.span("work"):
            yield number


async def gathered(items: AsyncIterator[int]) -> list[int]:
    return [item async for item in items]


CALLS: dict[str, Callable[[], int]] = {
    "plain": lambda: ray.call(Remote(work), 1),
    "coroutine": lambda: asyncio.run(ray.call(Remote(awaited), 1, other=1)),
    "generator": lambda: len(list(ray.call(Remote(streamed), 2))),
    "asynchronous generator": lambda: len(asyncio.run(gathered(ray.call(Remote(astreamed), 2)))),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_call_carries_its_callers_span(kind: str) -> None:
    """
    What is done in the call is a child of the span that it was made from, whatever kind of function it is.
    """
    with capture_spans() as captured, stepscope.step():
        with stepscope.span("caller"):
            carrier = stepscope.inject()
        with stepscope.attached(carrier):
            assert 2 == CALLS[kind]()

    [caller] = captured.named("caller")
    assert {caller.span_id} == {span.parent_span_id for span in captured.named("work")}


def test_the_end_of_a_program_leaves_those_whom_it_called_time_for_their_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Ray kills them with it; what called nobody, or with a plain call, has nobody to wait for.
    """
    monkeypatch.setattr(registration, "LATE_SPANS", 0.2)
    with capture_spans() as captured, stepscope.step():
        session = registration.session
        assert session is not None
        assert 1 == ray.call(Remote(lambda amount: amount), 1)
        assert not session.calls
        assert 2 == ray.call(Remote(work), 1)
        before = time.monotonic()
        stepscope.shutdown()

    assert 0.2 <= time.monotonic() - before
    assert ["work"] == [span.name for span in captured.named("work")]


def test_a_class_takes_context_in_its_public_methods() -> None:
    """
    Its inherited ones too; what is private is left as it was.
    """

    class Base:
        def inherited(self) -> None:
            with stepscope.span("work"):
                pass

    @ray.traced
    class Actor(Base):
        def own(self) -> None:
            with stepscope.span("work"):
                pass

        def _private(self) -> None:
            pass

    actor = Actor()
    with capture_spans() as captured, stepscope.step(), stepscope.span("caller"):
        ray.call(Remote(actor.own))
        ray.call(Remote(actor.inherited))

    [caller] = captured.named("caller")
    assert [caller.span_id] * 2 == [span.parent_span_id for span in captured.named("work")]
    assert ray.CARRIER not in inspect.signature(actor._private).parameters


def test_static_and_class_methods_take_context_too() -> None:
    """
    They stay what they are.
    """

    @ray.traced
    class Actor:
        @staticmethod
        def static(amount: int) -> int:
            with stepscope.span("work"):
                return amount

        @classmethod
        def of_class(cls, amount: int) -> str:
            with stepscope.span("work"):
                return cls.__name__ * amount

    with capture_spans() as captured, stepscope.step(), stepscope.span("caller"):
        assert (2, "ActorActor") == (ray.call(Remote(Actor.static), 2), ray.call(Remote(Actor().of_class), 2))

    [caller] = captured.named("caller")
    assert [caller.span_id] * 2 == [span.parent_span_id for span in captured.named("work")]


def test_a_constructor_takes_context_also_where_there_is_none() -> None:
    """
    An actor that is made inside a span lies below it; a class without a constructor can be made so too.
    """

    @ray.traced
    class Made:
        def __init__(self, amount: int) -> None:
            with stepscope.span("work"):
                self.amount = amount

    @ray.traced
    class Bare:
        pass

    @ray.traced
    class Derived(Made):
        pass

    with capture_spans() as captured, stepscope.step(), stepscope.span("caller"):
        assert [1, 2] == [ray.call(Remote(kind), amount).amount for kind, amount in ((Made, 1), (Derived, 2))]
        assert isinstance(ray.call(Remote(Bare)), Bare)

    [caller] = captured.named("caller")
    assert [caller.span_id] * 2 == [span.parent_span_id for span in captured.named("work")]


def test_what_is_not_traced_is_called_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """
    Its calls carry nothing, also where it takes anything, and that is said once; an error in the arguments is the
    caller's own.
    """

    def untraced(amount: int) -> int:
        return amount

    def configured(**config: Any) -> dict[str, Any]:
        return config

    with capture_spans(), stepscope.step():
        assert 1 == ray.call(Remote(untraced), 1)
        assert [{"amount": 2}] * 2 == [ray.call(Remote(configured), amount=2) for _ in range(2)]
        with pytest.raises(TypeError, match="too many"):
            ray.call(Remote(work), 1, 2)

    said = [record.getMessage() for record in caplog.records if "is not traced" in record.getMessage()]
    assert 2 == len(said)
    assert "configured is not traced" in said[1]


def test_the_decorator_says_where_it_belongs() -> None:
    """
    Above Ray's it could do nothing.
    """
    with pytest.raises(ConfigurationError, match="next to the class"):
        ray.traced(Remote(work))


def test_without_stepscope_a_call_is_a_plain_one() -> None:
    """
    Nothing is added to its arguments.
    """
    assert 2 == ray.call(Remote(work), 1)
    assert 2 == ray.call(Remote(lambda amount: amount + 1), 1)


def test_the_runtime_environment_names_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Settings and the run go to the workers; what the program says of its own wins, and is kept.
    """
    for name in list(os.environ):
        if name.startswith(ray.CARRIED):
            monkeypatch.delenv(name)
    monkeypatch.setenv(names.STEPS, "3")
    # So that what is exported is taken back.
    for name in (names.RUN_ENV, names.ATTEMPT_ENV, names.DIR):
        monkeypatch.setenv(name, "")

    found = ray.runtime_env({"pip": ["x"], "env_vars": {"OTEL_SERVICE_NAME": "mine", "A": "1"}})

    variables = found["env_vars"]
    assert ["x"] == found["pip"]
    assert {"3", "run", "mine", "1"} == {
        variables[name] for name in (str(names.STEPS), str(names.RUN_ENV), "OTEL_SERVICE_NAME", "A")
    }
    assert variables[names.ATTEMPT_ENV] == os.environ[names.ATTEMPT_ENV] != ""


def test_paths_hold_wherever_a_worker_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Ray gives each job a working directory of its own.
    """
    monkeypatch.chdir(tmp_path)
    for name in (names.RUN_ENV, names.ATTEMPT_ENV, names.DIR):
        monkeypatch.setenv(name, "")
    paths = (names.SOCKET, names.TOKEN_FILE, names.HTTP_PROFILER_TOKEN_FILE)
    for name in paths:
        monkeypatch.setenv(name, "a")
    monkeypatch.setenv(names.HTTP_PROFILER_URL, "http://127.0.0.1:1")
    monkeypatch.setenv(names.HTTP_PROFILER_DIR, str(tmp_path))

    variables = ray.runtime_env()["env_vars"]

    assert [str(tmp_path / "a")] * 3 == [variables[name] for name in paths]


def test_the_drivers_node_gives_its_name_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A worker is called as the node that it runs on, unless the program itself says how.
    """
    for name in (names.RUN_ENV, names.ATTEMPT_ENV, names.DIR):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv(names.NODE, "n0")

    assert names.NODE not in ray.runtime_env()["env_vars"]
    assert "n1" == ray.runtime_env({"env_vars": {str(names.NODE): "n1"}})["env_vars"][names.NODE]


@pytest.mark.parametrize(
    ("name", "value", "carried"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret", False),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20s3cret", False),
        ("OTEL_API_KEY", "s3cret", False),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:s3cret@127.0.0.1:1", False),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", True),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/keys/client.pem", True),
        (str(names.TOKEN_FILE), "/keys/token", True),
    ],
)
def test_what_is_secret_is_not_put_where_ray_shows_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, carried: bool
) -> None:
    """
    A path to it is no secret; and what the program itself says wins.
    """
    for exported in (names.RUN_ENV, names.ATTEMPT_ENV, names.DIR):
        monkeypatch.setenv(exported, "")
    monkeypatch.setenv(name, value)

    assert carried == (value == ray.runtime_env()["env_vars"].get(name))
    assert "s3cret" not in json.dumps(ray.runtime_env())
    assert value == ray.runtime_env({"env_vars": {name: value}})["env_vars"][name]


@pytest.mark.parametrize("config", ["", "nonsense", "[]", '{"runtime_env": null}'])
def test_what_the_job_sets_is_not_said_again(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    """
    Ray refuses two values for a variable, even the same; where the job sets none, all are said.
    """
    for name in (names.RUN_ENV, names.ATTEMPT_ENV, names.DIR):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv(names.STEPS, "3")

    monkeypatch.setenv(ray.JOB_CONFIG, json.dumps({"runtime_env": {"env_vars": {str(names.STEPS): "3"}}}))
    submitted = ray.runtime_env()["env_vars"]
    monkeypatch.setenv(ray.JOB_CONFIG, config)
    alone = ray.runtime_env()["env_vars"]

    assert names.STEPS not in submitted
    assert names.ATTEMPT_ENV in submitted
    assert "3" == alone[names.STEPS]


def test_a_disabled_run_is_disabled_in_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    And no run is named.
    """
    monkeypatch.setenv(names.DISABLED, "1")
    monkeypatch.delenv(names.ATTEMPT_ENV, raising=False)

    found = ray.runtime_env()

    assert "1" == found["env_vars"][names.DISABLED]
    assert names.ATTEMPT_ENV not in found["env_vars"]
