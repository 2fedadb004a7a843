"""
A class that is traced is the class that it was: constructors, what it inherits, and generators.
"""

import asyncio
import contextvars
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace

import stepscope
from stepscope.errors import ConfigurationError
from stepscope.integrations import ray
from stepscope.testing import capture_spans
from tests.unit.stepscope.driven_worker import carried


class Filled(dict[str, int]):
    """
    A class whose constructor is no function.
    """


class Made:
    """
    A class whose arguments are those of ``__new__``.
    """

    x: int

    def __new__(cls, x: int) -> "Made":
        """
        Take it.
        """
        made = object.__new__(cls)
        made.x = x
        return made


class Base:
    """
    What others inherit.
    """

    def __init__(self, x: int) -> None:
        self.x = x

    def f(self) -> str:
        """
        Who it is.
        """
        return "Base"

    @staticmethod
    def static(x: int) -> str:
        """
        The same, of no object.
        """
        return "Base" * x

    @classmethod
    def of_class(cls) -> str:
        """
        The same, of a class.
        """
        return "Base " + cls.__name__


@ray.traced
class Mixin:
    """
    Nothing of a constructor.
    """

    def hello(self) -> int:
        """
        Something.
        """
        return 1


@ray.traced
class Left(Base):
    """
    Inherits all.
    """


class Right(Base):
    """
    Has its own.
    """

    def __init__(self, x: int, y: int) -> None:
        super().__init__(x)
        self.y = y

    def f(self) -> str:
        """
        Who it is.
        """
        return "Right, " + super().f()

    @staticmethod
    def static(x: int) -> str:
        """
        The same, of no object.
        """
        return "Right" * x

    @classmethod
    def of_class(cls) -> str:
        """
        The same, of a class.
        """
        return "Right, " + super().of_class()


class Both(Left, Right):
    """
    Left comes first, and Right before what they share.
    """


class Mixed(Mixin, Base):
    """
    Has the constructor of its second base.
    """


def test_constructors_are_those_of_the_class() -> None:
    """
    Of built-in types, of ``__new__``, and of a base that comes after a mixin; none takes more than it did.
    """
    assert {"a": 1} == ray.traced(Filled)({"a": 1})
    assert 3 == ray.traced(Made)(3).x
    assert {"x": 3} == vars(Mixed(3))
    assert ["self", "x", ray.CARRIER] == list(inspect.signature(Mixed.__init__).parameters)
    with pytest.raises(TypeError, match="argument"):
        Mixin(1)  # type: ignore[call-arg]


def test_what_is_inherited_comes_in_the_order_of_the_class_that_is_asked() -> None:
    """
    A traced class between two others is passed over as any that does not define the method; signatures are those of
    what is called.
    """
    both = Both(1, 2)

    assert {"x": 1, "y": 2} == vars(both)
    assert ("Right, Base", "RightRight", "Right, Base Both") == (both.f(), both.static(2), Both.of_class())
    assert ("Base", "BaseBase", "Base Left") == (Left(1).f(), Left.static(2), Left.of_class())
    assert ["self", "x", "y", ray.CARRIER] == list(inspect.signature(Both.__init__).parameters)
    assert ["x", ray.CARRIER] == list(inspect.signature(Both.static).parameters)
    assert "__wrapped__" not in vars(Left.f)


def test_a_traced_class_can_be_sent_by_value() -> None:
    """
    As Ray does with one that is defined in the program's own file.
    """
    cloudpickle = pytest.importorskip("ray.cloudpickle")

    class Local(Base):
        def own(self) -> str:
            return super().f()

    sent = cloudpickle.loads(cloudpickle.dumps(ray.traced(Local)))

    assert ("Base", "Base", 3) == (sent(3).f(), sent(3).own(), sent(3).x)
    assert ray.CARRIER in inspect.signature(sent.f).parameters


log: list[str] = []


@ray.traced
class Streams:
    """
    Bodies that take what is sent, and end when they are told to.
    """

    def plain(self) -> Iterator[Any]:
        """
        As a generator.
        """
        try:
            with stepscope.span("body"):
                sent = yield trace.get_current_span().get_span_context().span_id
                try:
                    yield sent, trace.get_current_span().get_span_context().span_id
                except ValueError:
                    yield "caught"
        finally:
            log.append("finally")

    async def asynchronous(self) -> AsyncIterator[Any]:
        """
        As an asynchronous one.
        """
        try:
            with stepscope.span("body"):
                sent = yield trace.get_current_span().get_span_context().span_id
                try:
                    yield sent, trace.get_current_span().get_span_context().span_id
                except ValueError:
                    yield "caught"
        finally:
            await asyncio.sleep(0)
            log.append("finally")


class Awaited:
    """
    Drives an asynchronous generator as if it were a plain one: each piece in a task, and so in a context of its own.
    """

    def __init__(self, generator: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._generator = generator
        self._run = loop.run_until_complete

    def __next__(self) -> Any:
        """
        The next item.
        """
        return self._run(anext(self._generator))

    def send(self, value: Any) -> Any:
        """
        The next item, after that.
        """
        return self._run(self._generator.asend(value))

    def throw(self, error: Exception) -> Any:
        """
        The same.
        """
        return self._run(self._generator.athrow(error))

    def close(self) -> None:
        """
        End it.
        """
        self._run(self._generator.aclose())


@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
def test_a_generator_is_driven_as_without(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    What is sent and thrown reaches the body, and it has ended when ``close`` returns; its spans are its own, and no
    context is left in the consumer's or taken from it, wherever each piece runs.
    """
    carrier = carried(1)
    log.clear()
    loop = asyncio.new_event_loop()

    def begun(streams: Streams) -> Any:
        generator = getattr(streams, kind)(**{ray.CARRIER: carrier})
        return generator if kind == "plain" else Awaited(generator, loop)

    def apart(work: Callable[[], Any]) -> Any:
        return contextvars.copy_context().run(work)

    with capture_spans(role="worker") as captured, caplog.at_level(logging.ERROR):
        generator = begun(Streams())
        first = apart(lambda: next(generator))
        assert not trace.get_current_span().get_span_context().is_valid
        assert ("sent", first) == generator.send("sent")
        assert "caught" == apart(lambda: generator.throw(ValueError()))
        generator.close()
        assert ["finally"] == log
        assert not trace.get_current_span().get_span_context().is_valid
        other = begun(Streams())
        next(other)
        with pytest.raises(KeyError):
            other.throw(KeyError())
    loop.close()

    assert ["finally"] * 2 == log
    assert [2, 2] == [span.step for span in captured.named("body")]
    assert {carrier["traceparent"].split("-")[2]} == {span.parent_span_id for span in captured.named("body")}
    assert "" == caplog.text


def test_a_call_that_is_ended_from_elsewhere_leaves_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """
    As a task that was cancelled, whose coroutine is closed in another context.
    """

    @ray.traced
    async def waits() -> None:
        await asyncio.Future()

    async def begin() -> Any:
        coroutine: Any = waits(**{ray.CARRIER: carrier})
        contextvars.copy_context().run(coroutine.send, None)
        return coroutine

    carrier = carried(1)
    with capture_spans(role="worker"), caplog.at_level(logging.ERROR):
        asyncio.run(begin()).close()

    assert "" == caplog.text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: ray.traced(loads="f", publishes="f")(Base), "name two methods"),
        (lambda: ray.traced("load"), "by keyword"),
        (lambda: ray.traced(functools.partial(int, "3")), "neither a class nor a function"),
        (lambda: ray.traced(loads=Base.f)(Base), "no public method"),  # type: ignore[call-overload]
        (lambda: ray.traced(loads="f")(len), "is no class"),
        (lambda: ray.runtime_env({"env_vars": ["A=1"]}), "are dictionaries"),
        (lambda: ray.runtime_env(["a"]), "are dictionaries"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_traced_is_said_at_once(wrong: Callable[[], Any], said: str) -> None:
    """
    With what was given, and what is to be given instead.
    """
    with pytest.raises(ConfigurationError, match=said):
        wrong()


def test_a_static_method_may_load() -> None:
    """
    It ends the step as any other.
    """

    @ray.traced(loads="load")
    class Static:
        @staticmethod
        def load() -> None:
            pass

        def work(self) -> None:
            pass

    with capture_spans(role="worker", selected={2}) as captured:
        worker: Any = Static()
        worker.work(**{ray.CARRIER: carried(1)})
        worker.load()
        closed = captured.agent.windows.of("close")

    assert ["boundary"] == [call["reason"] for call in closed]
