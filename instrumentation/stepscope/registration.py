"""
The one session of this process: how it begins, which one is in force, and that it ends.

Light until ``init()``: the OpenTelemetry SDK and everything of ours behind it is imported there.
"""

from __future__ import annotations

import dataclasses
import operator
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex, cast

from stepscope import endpoint, ids, names, settings
from stepscope.complaints import complaints
from stepscope.errors import ConfigurationError
from stepscope.seam import Change, Identity, LiveSpan
from stepscope.version import MAX_VERSION

if TYPE_CHECKING:
    from stepscope.lifetime import Lifetime
    from stepscope.session import Session
    from stepscope.settings import Settings

EXIT_TIMEOUT = 5.0
"""Seconds that leaving may take beyond the profiler's own stop: a sidecar that is there takes milliseconds."""

LATE_SPANS = 0.3
"""Seconds that the end of a process takes at least which has called others: Ray may kill them with it, and they send
the spans of the last calls after the answers. That takes hundredths of a second, more on crowded cores."""

FILES = (names.SOCKET, names.TOKEN_FILE, names.HTTP_PROFILER_TOKEN_FILE)
"""Paths that children are told absolutely: they may work in another folder, as Ray's workers do."""

session: Session | None = None
"""The one in force; None while stepscope is off. Read on every call of :mod:`stepscope.sdk`."""

forked = False
"""Whether this is a forked child of a process that was registered, and has not registered itself."""

_lifetime: Lifetime | None = None
_lock = threading.RLock()


def init(
    *,
    role: str,
    rank: int = 0,
    world_size: int | None = None,
    param_version: int = 0,
    resumed_from: int | None = None,
    total_steps: int | None = None,
    device_ids: Iterable[str | int] = (),
    register_only: bool = False,
) -> None:
    """
    Register this process as rank ``rank`` of ``role``. Again with the same arguments: nothing; with others: anew.

    Call it before training, on the main thread, once CUDA is set up. ``resumed_from`` is the version a checkpoint held.
    ``device_ids`` names the accelerators it works on, alike in all processes of a node: two don't record one at a time.
    By default the one that CUDA_VISIBLE_DEVICES or ASCEND_RT_VISIBLE_DEVICES and torch's current device tell of.
    ``register_only`` is for a driver, which passes the run on to its workers but has no step of its own.

    Raises:
        ConfigurationError: a setting or an argument cannot be used.
    """
    if disabled():
        return
    chosen = settings.read()
    endpoint.check(os.environ)
    identity = _identity(
        role=role,
        rank=rank,
        world_size=world_size,
        param_version=param_version,
        resumed_from=resumed_from,
        total_steps=total_steps,
        device_ids=device_ids,
        register_only=register_only,
    )
    with _lock:
        if session is not None:
            if session.identity == identity:
                return
            _end(session, reason=names.Reason.REREGISTERED, timeout=EXIT_TIMEOUT)
        _begin(export(chosen), identity)


def shutdown(*, timeout: float = EXIT_TIMEOUT) -> None:
    """
    End what is open and deliver what is left. Happens by itself when the process ends; twice is once.
    """
    if (leaving := session) is not None:
        usable = isinstance(timeout, int | float) and timeout >= 0
        patience, began = timeout if usable else EXIT_TIMEOUT, time.monotonic()
        _end(leaving, reason=names.Reason.PROCESS_EXIT, timeout=patience)
        if leaving.calls:
            threading.Event().wait(max(0.0, began + min(LATE_SPANS, patience) - time.monotonic()))
        if _lifetime is not None:
            _lifetime.release_sigterm()


def use(other: Session | None) -> Session | None:
    """
    Put ``other`` in force and return the one that was: for tests, see :mod:`stepscope.testing`.
    """
    global session
    with _lock:
        before, session = session, other
    return before


def disabled() -> bool:
    """
    Whether ``STEPSCOPE_DISABLED`` says so, whatever else the environment holds.
    """
    flag = {name: value for name, value in os.environ.items() if name == names.DISABLED}
    return settings.read(flag).disabled


def _identity(
    *,
    role: str,
    rank: int,
    world_size: int | None,
    param_version: int,
    resumed_from: int | None,
    total_steps: int | None,
    device_ids: Iterable[str | int],
    register_only: bool,
) -> Identity:
    if not isinstance(role, str) or not settings.RUN_PATTERN.fullmatch(role):
        raise ConfigurationError(f"role={role!r}: use letters, digits, '.', '_' and '-'; for example trainer")
    rank, param_version = _whole("rank", rank), _whole("param_version", param_version)
    for argument, value in (("rank", rank), ("param_version", param_version)):
        if not 0 <= value < MAX_VERSION:
            raise ConfigurationError(f"{argument}={value!r} must be at least 0, and fit into 64 bits")
    return Identity(
        role=role,
        rank=rank,
        world_size=None if world_size is None else _whole("world_size", world_size),
        param_version=param_version,
        resumed_from=None if resumed_from is None else _whole("resumed_from", resumed_from),
        total_steps=None if total_steps is None else _whole("total_steps", total_steps),
        device_ids=_devices(device_ids),
        register_only=register_only,
    )


def _whole(argument: str, value: object) -> int:
    """
    ``value`` as the plain number that is sent: frameworks have kinds of their own, which JSON has not.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        # What it answers may still be of a kind of its own.
        return int(operator.index(cast("SupportsIndex", value)))
    except TypeError:
        kind = type(value).__name__
        raise ConfigurationError(
            f"{argument}={value!r:.60} is a {kind}, not a whole number; write {argument}=int(...)"
        ) from None


def _devices(device_ids: Iterable[str | int]) -> tuple[str, ...]:
    try:
        named = tuple(device_ids)
    except TypeError:
        raise ConfigurationError(
            f"device_ids={device_ids!r} is a {type(device_ids).__name__}, not a list; write device_ids=[...]"
        ) from None
    return tuple(map(_device, named))


def _device(device: object) -> str:
    # A name, or whatever says its own, as a torch.device does.
    if isinstance(device, float) or hasattr(device, "__index__"):
        return str(_whole("device_ids", device))
    return str(device)


def export(chosen: Settings) -> Settings:
    """
    Fill in run, attempt and folder, and put them into the environment, so that children take part in the same run.
    """
    for name in FILES:
        if path := os.environ.get(name, "").strip():
            os.environ[name] = str(Path(path).absolute())
    filled = dataclasses.replace(
        chosen,
        run=chosen.run or "run",
        attempt=chosen.attempt or ids.new_attempt(),
        directory=chosen.directory.absolute(),
        socket=None if chosen.socket is None else chosen.socket.absolute(),
        token_file=None if chosen.token_file is None else chosen.token_file.absolute(),
    )
    os.environ[names.RUN_ENV] = filled.run
    os.environ[names.ATTEMPT_ENV] = filled.attempt
    os.environ[names.DIR] = str(filled.directory)
    if filled.steps_file is not None:
        os.environ[names.STEPS_FILE] = str(filled.steps_file)
    return filled


def _begin(chosen: Settings, identity: Identity) -> None:
    global session, forked, _lifetime
    from stepscope.agent import Agent
    from stepscope.driven import catch_up
    from stepscope.export import Outbox, pace
    from stepscope.lifetime import Lifetime
    from stepscope.poster import upstream
    from stepscope.session import Session

    def live_spans() -> Sequence[LiveSpan]:
        return session.spans.live() if session is not None else []

    def changed(change: Change) -> None:
        if session is not None:
            session.spans.news(change)

    try:
        agent = Agent.start(chosen, identity, live_spans=live_spans, changed=changed)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - without an agent training goes on, unobserved
        complaints.fault("init", error)
        return
    delay, capacity = pace(os.environ)
    outbox = Outbox(
        endpoint=agent.otlp_endpoint,
        upstream=upstream(os.environ),
        dropped=agent.dropped,
        delay=delay,
        capacity=capacity,
    )
    agent.registered = outbox.again
    try:
        session = Session(settings=chosen, identity=identity, agent=agent, sink=outbox, hurry=outbox.hurry)
        forked = False
    except BaseException:
        outbox.shutdown(1.0)
        agent.close(1.0)
        raise
    if _lifetime is None:
        _lifetime = Lifetime(shutdown=shutdown, forget=_forget)
        _lifetime.install()
    else:
        _lifetime.guard_sigterm()
    catch_up(session.driven)


def _end(leaving: Session, *, reason: names.Reason, timeout: float) -> None:
    global session
    leaving.close(reason=reason, timeout=timeout)
    if session is leaving:
        session = None


def _forget() -> None:
    global session, forked, _lock, _lifetime
    _lock = threading.RLock()
    _lifetime = None
    if session is not None:
        session.forget()
        session, forked = None, True
