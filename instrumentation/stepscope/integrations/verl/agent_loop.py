"""
In an agent loop's process: where verl begins a sample, asks a server, and hears its answer.

The class is made a Ray actor's in other processes, and its wrappers travel with it by value: they refer to modules and
functions alone. What they keep is in :mod:`stepscope.integrations.verl.samples`.
"""

import functools
from typing import Any

from stepscope import names
from stepscope.complaints import complaints
from stepscope.integrations.verl import samples
from stepscope.integrations.verl.phases import Function, whole

EXTRAS = "extras"
"""What verl carries along with every trajectory, and leaves empty itself."""


def runs(original: Function) -> Function:
    """
    ``AgentLoopWorker._run_agent_loop(sampling_params, trajectory, …)``: a sample, from its prompt to its reward.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, sampling_params: Any, trajectory: Any, *args: Any, **kwargs: Any) -> Any:
        name, version, validates = sample_of(trajectory, kwargs)
        if version is None and name and "session_id" not in kwargs:
            version = await samples.heard()
        with samples.running(name, version=version, validates=validates) as sample:
            result = await original(self, sampling_params, trajectory, *args, **kwargs)
            if sample is not None:
                mark(result, sample)
            return result

    return wrapper


def asks(original: Function) -> Function:
    """
    ``LLMServerClient._vllm_request_id(request_id)``: the id of a request, by which the server knows its sample.

    Left as it is where the caller's own is used: verl is to generate the same again then.
    """

    @functools.wraps(original)
    def wrapper(self: Any, request_id: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, request_id, *args, **kwargs)
        return result if result == request_id else samples.addressed(result)

    return wrapper


def hears(original: Function) -> Function:
    """
    ``LLMServerClient.generate(request_id, …)``: a turn, up to its end or to the update that interrupts it.
    """

    @functools.wraps(original)
    async def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = await original(self, *args, **kwargs)
        samples.turn(result)
        return result

    return wrapper


def sample_of(trajectory: Any, given: dict[str, Any]) -> tuple[str, int | None, bool]:
    """
    What a sample is called, the version that it begins under if somebody knows, and whether it is validation's.
    """
    try:
        validates = bool(trajectory["validate"])
        number = given.get("session_id", trajectory["rollout_n"])
        name = f"{given.get('uid', trajectory['sample_index'])}_{number}"
        if "session_id" not in given:
            # fully_async: the trainer has told. Its step is a number of prompts.
            return name, samples.known.version, validates
        # V1: the step in which the trainer handed the prompt out; in validation the one that it has completed.
        step = whole(trajectory["step"])
        return name, None if step is None else max(0, step - (not validates)), validates
    except Exception as error:  # noqa: BLE001 - verl's names are not ours; the sample goes without a span
        complaints.fault("the name of a sample", error)
        return "", None, False


def mark(result: Any, sample: Any) -> None:
    """
    Let ``result`` carry the span of ``sample`` to the trainer, where verl has room for it. V1 returns nothing here.
    """
    try:
        if result is None:
            return
        if result.reward_score is not None:
            sample.span.set(names.REWARD, float(result.reward_score))
        if result.extra_fields.get(EXTRAS) is None:
            result.extra_fields[EXTRAS] = {samples.ROLE: sample.span.carrier()}
    except Exception as error:  # noqa: BLE001 - the sample goes without
        complaints.fault("the carrier of a sample", error)
