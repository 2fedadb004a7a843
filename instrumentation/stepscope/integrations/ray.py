"""
For programs on Ray: the run in the runtime environment of all workers, and context that travels with a call.

Patches nothing of Ray and does not import it. Ray's own tracing hook is not relied upon, because it breaks streaming
generators. Which process is which role and rank is said by ``stepscope.init()`` in each actor, as anywhere else; that
also starts or finds the sidecar of the actor's node.
"""

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from stepscope import driven, endpoint, names, registration, settings
from stepscope.complaints import complaints
from stepscope.driven import Part
from stepscope.errors import ConfigurationError
from stepscope.integrations import handles, receiving
from stepscope.integrations.receiving import CARRIER as CARRIER

CARRIED = ("STEPSCOPE_", "OTEL_")
"""What of the driver's environment belongs to the run. Ray does not pass it on to a cluster that runs already."""

OF_A_NODE = frozenset({str(names.NODE)})
"""What the driver's environment says of its own node alone: a worker has it from the node that it runs on."""

SECRET = re.compile(r".*(HEADERS|TOKEN|SECRET|PASSWORD|KEY)")
"""What a variable is called that holds what only some may know. Ray shows a runtime environment to whoever asks it of a
job, and programs print theirs. A path to a file of secrets is none: each node reads its own."""

PATH = re.compile(r"OTEL_EXPORTER_OTLP_(TRACES_|METRICS_|LOGS_)?CLIENT_KEY")
"""What is called alike, and is such a path by the OpenTelemetry specification."""

PASSWORD = re.compile(r"//[^/\s]*:[^/\s]*@")
"""An address with a user and a password in it."""

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where Ray tells the program of a submitted job what the job's own runtime environment is."""

T = TypeVar("T")


def runtime_env(base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """
    ``base`` (a runtime environment of Ray's) with this run in its ``env_vars``; what ``base`` says there wins.

    Give it to ``ray.init()``. The first call names the run, unless ``stepscope run`` or the environment has. What a
    submitted job sets in its own runtime environment is left out: workers have it, and Ray refuses to be told twice. So
    is the name of the driver's node, and what is secret, as ``OTEL_EXPORTER_OTLP_HEADERS`` may be and an address with
    a password: each node has these in its own environment.

    Raises:
        ConfigurationError: a ``STEPSCOPE_*`` or ``OTEL_EXPORTER_OTLP_*`` setting cannot be used, or ``base``.
    """
    given = base or {}
    if not isinstance(given, Mapping) or not isinstance(given.get("env_vars") or {}, Mapping):
        raise ConfigurationError(
            f"runtime_env({base!r}): a runtime environment and its env_vars are dictionaries; for example "
            '{"env_vars": {"A": "1"}}'
        )
    if not registration.disabled():
        endpoint.check(os.environ)
        registration.export(settings.read())
    kept = OF_A_NODE | _of_the_job()
    carried = {name: value for name, value in os.environ.items() if _is_for_all(name, value) and name not in kept}
    variables = given.get("env_vars") or {}
    return {**given, "env_vars": {**carried, **variables}}


@overload
def traced(target: T) -> T: ...
@overload
def traced(target: None = None, *, loads: str = "", publishes: str = "") -> Callable[[T], T]: ...
def traced(target: T | None = None, *, loads: str = "", publishes: str = "") -> T | Callable[[T], T]:
    """
    Let the constructor and the public methods of a class, or a function, take the caller's context. Stands below
    ``@ray.remote``.

    Spans in a call made by :func:`call` are children of the caller's span, and a process that makes no boundary calls
    of its own takes part in the caller's step. Other calls are as they were.

    ``loads`` names the method in which such a process takes new weights in: its step ends before that. ``publishes``
    names the one in which it hands them over: its step ends with that.

    Raises:
        ConfigurationError: it stands above ``@ray.remote`` or over something else, or there is no such method.
    """
    if loads and loads == publishes:
        raise ConfigurationError(
            f"traced(loads={loads!r}, publishes={publishes!r}): a step ends before a load and with a publication; name "
            "two methods, or one of the two"
        )
    parts = {name: part for name, part in ((loads, Part.LOADS), (publishes, Part.PUBLISHES)) if name}
    if target is None:
        return lambda given: _traced(given, parts)
    return _traced(target, parts)


def call(method: Any, *args: Any, **kwargs: Any) -> Any:
    """
    ``method.remote(…)`` with this caller's context, for what is :func:`traced`: a method, a function, or a class.

    Returns what ``remote`` returns: an object reference, several, a generator of them, or an actor. While stepscope is
    off, and for what is not traced, it is a plain call.
    """
    if carrier := driven.carrier():
        if handles.takes(method, CARRIER):
            if (session := registration.session) is not None:
                session.calls = True
            return method.remote(*args, **kwargs, **{CARRIER: carrier})
        if (name := handles.name(method)) not in _untraced:
            _untraced.add(name)
            complaints.warn(f"untraced:{name}", "%s is not traced: its calls carry no context", name)
    return method.remote(*args, **kwargs)


_untraced: set[str] = set()
"""What has been said not to be traced: classes and methods, not actors, so that there are few."""


def _is_for_all(name: str, value: str) -> bool:
    if not name.startswith(CARRIED) or PASSWORD.search(value):
        return False
    return not SECRET.fullmatch(name) or PATH.fullmatch(name) is not None


def _of_the_job() -> set[str]:
    try:
        job = json.loads(os.environ.get(JOB_CONFIG) or "{}")
        return set(job.get("runtime_env", {}).get("env_vars", {}))
    except (ValueError, AttributeError, TypeError):
        return set()


def _traced(target: T, parts: Mapping[str, Part]) -> T:
    if hasattr(target, "remote"):
        raise ConfigurationError(f"traced was given {target!r}: put @traced below @ray.remote, next to the class")
    if inspect.isclass(target):
        receiving.methods(target, parts)
        return target
    for name in parts:
        raise ConfigurationError(f"traced: {target!r} is no class, and has no method {name!r}: leave that out")
    return receiving.function(target)  # type: ignore[no-any-return]  # a function in, one of its signature out
