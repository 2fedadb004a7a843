"""
Functions and classes whose calls take the caller's context: what :func:`stepscope.integrations.ray.traced` makes.

Owns how each kind of function is wrapped, and that a class stays what it was: what it defines is wrapped, what it
inherits is looked up when it is called, so that subclasses and constructors work as without. What a call does to the
process is :mod:`stepscope.driven`'s.
"""

import functools
import inspect
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import Any

from stepscope.driven import Part
from stepscope.errors import ConfigurationError
from stepscope.received import Received

CARRIER = "_stepscope_carrier"
"""The argument that a call with context has more than others."""

INIT = "__init__"


def function(target: Any) -> Any:
    """
    A function that takes context.

    Raises:
        ConfigurationError: ``target`` is nothing of which Ray makes a task or an actor.
    """
    try:
        if not callable(target) or isinstance(target, functools.partial):
            raise ValueError
        return taking(target)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"traced was given {target!r}, which is neither a class nor a function: decorate a class or a function, "
            "and name its methods by keyword, as in @traced(loads='load')"
        ) from None


def methods(target: type, parts: Mapping[str, Part]) -> None:
    """
    Let the constructor and the public methods of ``target`` take context.

    Raises:
        ConfigurationError: there is no method of a name in ``parts``.
    """
    for name in parts:
        if not isinstance(name, str) or name.startswith("_") or not _is_method(_found(target.__mro__, name)):
            raise ConfigurationError(
                f"traced: {target!r} has no public method {name!r}: name one that it has, as in loads='load'"
            )
    for name in dir(target):
        if name.startswith("_") and name != INIT:
            continue
        own, part = vars(target).get(name), parts.get(name, Part.NONE)
        if own is not None and not isinstance(own, Inherited):
            if _is_method(own):
                setattr(target, name, _method(own, part))
        elif name == INIT or _is_method(_found(target.__mro__, name)):
            setattr(target, name, Inherited(target, name, part))


class Inherited:
    """
    Stands in a class for a method that it inherits: the one after it in the order of the class that is asked.
    """

    def __init__(self, place: type, name: str, part: Part) -> None:
        self._place = place
        self._name = name
        self._part = part
        self._made: weakref.WeakKeyDictionary[type, tuple[Any, Any]] = weakref.WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Without what was made for this process.
        """
        return type(self), (self._place, self._name, self._part)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """
        The method, bound where the one that is inherited would be.
        """
        owner = type(instance) if owner is None else owner
        made = self.made(owner)
        return made.__get__(instance, owner) if hasattr(made, "__get__") else made

    def made(self, owner: type) -> Any:
        """
        What a class ``owner`` gets: a method that takes context.
        """
        order = owner.__mro__
        inherited = _found(order[order.index(self._place) + 1 :], self._name)
        if isinstance(inherited, Inherited):
            inherited = inherited.made(owner)
        before, made = self._made.get(owner, (None, None))
        if before is not inherited or made is None:
            given = inherited
            if self._name == INIT and not inspect.isfunction(inherited):
                given = _constructor(inherited, owner)
            made = _method(given, self._part) if _is_method(given) else given
            if isinstance(made, staticmethod):
                # Ray looks at the class itself for what is static, and finds this object; a bound method it knows.
                made = classmethod(_dropping(made.__func__))
            self._made[owner] = inherited, made
        return made


def taking(function: Callable[..., Any], part: Part = Part.NONE) -> Callable[..., Any]:
    """
    ``function`` with one argument more, the context that it runs in.
    """
    signature = inspect.signature(function)
    if CARRIER in signature.parameters and part is Part.NONE:
        return function

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with Received(kwargs.pop(CARRIER, None), part):
            return function(*args, **kwargs)

    @functools.wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        async with Received(kwargs.pop(CARRIER, None), part):
            return await function(*args, **kwargs)

    @functools.wraps(function)
    def streamed(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with Received(kwargs.pop(CARRIER, None), part) as call:
            # Between two items the consumer runs, perhaps in another context: ours is there for the body only.
            call.pause()
            body = function(*args, **kwargs)
            go: Callable[[], Any] = functools.partial(next, body)
            while True:
                call.resume()
                try:
                    item = go()
                except StopIteration as end:
                    return end.value
                finally:
                    call.pause()
                try:
                    go = functools.partial(body.send, (yield item))
                except GeneratorExit:
                    call.resume()
                    try:
                        body.close()
                    finally:
                        call.pause()
                    raise
                except BaseException as error:  # noqa: BLE001 - what was thrown is the body's
                    go = functools.partial(body.throw, error)

    @functools.wraps(function)
    async def astreamed(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        async with Received(kwargs.pop(CARRIER, None), part) as call:
            call.pause()
            body = function(*args, **kwargs)
            go: Callable[[], Any] = body.__anext__
            while True:
                call.resume()
                try:
                    item = await go()
                except StopAsyncIteration:
                    return
                finally:
                    call.pause()
                try:
                    go = functools.partial(body.asend, (yield item))
                except GeneratorExit:
                    call.resume()
                    try:
                        await body.aclose()
                    finally:
                        call.pause()
                    raise
                except BaseException as error:  # noqa: BLE001 - what was thrown is the body's
                    go = functools.partial(body.athrow, error)

    wrapper: Any = plain
    if inspect.isasyncgenfunction(function):
        wrapper = astreamed
    elif inspect.isgeneratorfunction(function):
        wrapper = streamed
    elif inspect.iscoroutinefunction(function):
        wrapper = awaited
    # Ray looks behind a wrapper for the signature that it checks calls against.
    del wrapper.__wrapped__
    wrapper.__signature__ = _widened(signature)
    return wrapper  # type: ignore[no-any-return]  # one of the four


def _found(order: tuple[type, ...], name: str) -> Any:
    """
    What the first class in ``order`` that has ``name`` itself has there.
    """
    return next((vars(one)[name] for one in order if name in vars(one)), None)


def _is_method(found: Any) -> bool:
    return inspect.isfunction(found) or isinstance(found, staticmethod | classmethod | Inherited)


def _method(found: Any, part: Part) -> Any:
    if isinstance(found, staticmethod | classmethod):
        inner = found.__func__
        return type(found)(taking(inner, part)) if inspect.isroutine(inner) else found
    return taking(found, part)


def _dropping(function: Callable[..., Any]) -> Callable[..., Any]:
    """
    ``function`` with an argument before the others, which it does not get.
    """

    def dropping(_: type, /, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    wrapper: Any = functools.update_wrapper(dropping, function)
    del wrapper.__wrapped__
    signature = inspect.signature(function)
    first = inspect.Parameter("_", inspect.Parameter.POSITIONAL_ONLY)
    wrapper.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])
    return wrapper  # type: ignore[no-any-return]  # that function


def _constructor(inherited: Any, owner: type) -> Callable[..., None]:
    """
    For a class without a constructor in Python; its arguments may be those of ``__new__``.
    """
    new: Any = owner.__new__
    # With a constructor of its own a class is told that object's takes nothing.
    done = inherited is object.__init__ and new is not object.__new__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes that method
        if not done:
            inherited(self, *args, **kwargs)

    constructor: Any = __init__
    if inherited is object.__init__ and new is object.__new__:
        constructor.__signature__ = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)])
    elif done and inspect.isfunction(new):
        constructor.__signature__ = inspect.signature(new)
    return constructor  # type: ignore[no-any-return]  # that function


def _widened(signature: inspect.Signature) -> inspect.Signature:
    parameters = list(signature.parameters.values())
    if CARRIER in signature.parameters:
        return signature
    added = inspect.Parameter(CARRIER, inspect.Parameter.KEYWORD_ONLY, default=None)
    at = len(parameters)
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        at -= 1
    return signature.replace(parameters=[*parameters[:at], added, *parameters[at:]])
