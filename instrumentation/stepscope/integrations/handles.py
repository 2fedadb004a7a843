"""
What a handle of Ray's stands for: the parameters of the function that it calls, and its name.

Reads where Ray itself looks before it sends a call, through ``.options(…)`` and Ray's client too. Where nothing is
found it says so: what is called in the other process cannot be known then.
"""

import inspect
from collections.abc import Iterable
from typing import Any

WRAPPED = ("_actor_method", "_remote_stub")
"""Attributes in which what ``.options(…)`` returns holds what it was made of."""

ENCLOSED = ("func_cls", "actor_cls")
"""Names by which a function within it does, where there is no such attribute."""

SIGNATURES = ("_signature", "_init_signature")
"""Attributes in which a method's handle, or a class of Ray's client, holds a signature, or its parameters."""


def takes(handle: Any, name: str) -> bool:
    """
    Whether what ``handle`` calls is known to have a parameter ``name`` that is given by name alone.
    """
    try:
        parameters = list(_parameters(_inner(handle)))
    except Exception:  # noqa: BLE001 - Ray's insides may look otherwise some day: then it is not known
        return False
    return any(one.name == name and one.kind is inspect.Parameter.KEYWORD_ONLY for one in parameters)


def name(handle: Any) -> str:
    """
    The name of what ``handle`` calls, the same for all actors of a class.
    """
    inner = _inner(handle)
    try:
        if method := getattr(inner, "_method_name", ""):
            actor = getattr(inner, "_actor", None)
            described = getattr(actor, "_ray_actor_creation_function_descriptor", None)
            return f"{getattr(described, 'class_name', type(actor).__name__)}.{method}"
        if meta := getattr(inner, "__ray_metadata__", None):
            return str(meta.class_name)
        if function := getattr(inner, "_function_name", ""):
            return str(function)
        called = next(filter(None, (getattr(inner, one, None) for one in ("_function", "_func", "actor_cls"))), inner)
        return str(getattr(called, "__qualname__", type(called).__name__))
    except Exception:  # noqa: BLE001 - as above
        return type(handle).__name__


def _inner(handle: Any) -> Any:
    """
    What ``handle`` was made of by ``.options(…)``, or itself.
    """
    for attribute in WRAPPED:
        if (inner := getattr(handle, attribute, None)) is not None:
            return inner
    remote = getattr(getattr(handle, "remote", None), "__func__", None)
    if inspect.isfunction(remote):
        enclosed = inspect.getclosurevars(remote).nonlocals
        for variable in ENCLOSED:
            if (inner := enclosed.get(variable)) is not None:
                return inner
    return handle


def _parameters(handle: Any) -> Iterable[inspect.Parameter]:
    for attribute in SIGNATURES:
        if (found := getattr(handle, attribute, None)) is not None:
            return found.parameters.values() if isinstance(found, inspect.Signature) else found
    if (meta := getattr(handle, "__ray_metadata__", None)) is not None:
        return meta.method_meta.signatures["__init__"]  # type: ignore[no-any-return]  # Ray's own
    # Ray looks behind wrappers as well.
    return inspect.signature(inspect.unwrap(handle._function)).parameters.values()  # noqa: SLF001 - there is no other
