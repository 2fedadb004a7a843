"""
The other processes of a verl job, one at a time in this one: a rollout server and a training worker.

``python -m tests.verl.processes_job SCENARIOS TARGET``: the methods are verl's own, called in the order in which verl's
checkpoint manager and trainers call them; engine, model and transport are stand-ins.
"""

import asyncio
import json
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stepscope import registration
from stepscope.integrations.verl import samples, validation
from stepscope.integrations.verl.server import again
from tests.verl import engine
from tests.verl.capture import captured
from tests.verl.standins import BACKEND, Transport


async def update(server: Any, version: int) -> None:
    """
    An update, as ``CheckpointEngineManager.update_weights()`` and verl's server adapter bring it.
    """
    await server.abort_all_requests()
    await server.release_kv_cache()
    await server.set_global_steps(version)
    await server.resume_kv_cache()
    await server.resume_generation()


async def rollout(scenario: dict[str, Any]) -> list[Any]:
    """
    A replica from its first weights on: a request in each step, one of them across an update.
    """
    server = engine.server(rank=scenario.get("rank", 0))
    first = scenario.get("first", 0)
    replies: list[Any] = []
    validated = scenario.get("validated", ())
    if scenario.get("twice"):
        # The run has this version, and this replica has not: as one on the trainer's devices.
        again(server, first)
    if first in validated:
        validation.wait(server)
    await update(server, first)
    if first in validated:
        await validate(server, replies, first)
    for version in range(first + 1, scenario.get("steps", 3) + 1):
        whole = asyncio.create_task(server.generate([1, 2, 3], {}, f"whole-{version}"))
        across = asyncio.create_task(server.generate([1, 2, 3], {}, f"across-{version}"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        server.engine.finish(f"whole-{version}")
        replies.append((await whole).stop_reason)
        if scenario.get("pauses"):
            # As verl rebalances requests, or validates: no update.
            await server.abort_all_requests()
            await server.resume_generation()
        if version in validated:
            validation.wait(server)
        await update(server, version)
        if version in validated:
            await validate(server, replies, version)
        if scenario.get("twice"):
            again(server, version)
            await update(server, version)
        replies.append((await across).stop_reason)
    return replies


async def validate(server: Any, replies: list[Any], version: int) -> None:
    """
    A request of validation, and the word that it is over.
    """
    request = asyncio.create_task(server.generate([1, 2, 3], {}, f"validation-{version}"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    server.engine.finish(f"validation-{version}")
    replies.append((await request).stop_reason)
    await asyncio.to_thread(validation.go, server)
    for _ in range(3):
        await asyncio.sleep(0)


def worker() -> Any:
    """
    verl's worker: rank 1 of 2.
    """
    from verl.experimental.separation.engine_workers import DetachActorWorker

    made = DetachActorWorker.__new__(DetachActorWorker)
    furnish_worker(made, rank=1, world_size=2)
    return made


def furnish_worker(made: Any, *, rank: int, world_size: int) -> None:
    """
    Give a worker what its constructor and ``init_model()`` would, but for a model.
    """
    made._rank, made._world_size = rank, world_size
    made.role, made.enable_routing_replay, made.profiler = "actor", False, None
    made.config = SimpleNamespace(rollout=SimpleNamespace(checkpoint_engine=SimpleNamespace(backend=BACKEND)))
    made.checkpoint_engine = Transport()
    made.actor = SimpleNamespace(
        engine=SimpleNamespace(get_per_tensor_param=lambda: (iter(()), None)),
        infer_batch=lambda data: None,
        train_mini_batch=lambda data: None,
        save_checkpoint=lambda *args: None,
    )


async def training(scenario: dict[str, Any]) -> list[Any]:
    """
    A worker as V1's trainer drives it.
    """
    made = worker()
    await made.update_weights(global_steps=0, mode="auto")
    for version in range(1, scenario.get("steps", 3) + 1):
        for _ in range(scenario.get("mini_batches", 1)):
            made.compute_log_prob(None)
            made.update_actor(None)
        if version == scenario.get("saves"):
            made.save_checkpoint("folder", None, version, max_ckpt_to_keep=1)
        await made.update_weights(global_steps=version, mode="auto")
    return []


async def sample(scenario: dict[str, Any]) -> list[Any]:
    """
    A sample of two turns, the second of them across an update, in verl's agent loop worker and through its client.
    """
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    from tests.verl.agents import Local, configuration, furnish, through

    server = engine.server()
    await update(server, 0)
    made, config = AgentLoopWorker.__new__(AgentLoopWorker), configuration()
    furnish(made, config=config, client=through(Local(server), config))
    told = {"agent_name": "standin", "uid": "uid_sample_0_7", "raw_prompt": "", "index": 7}
    trajectory = {"step": -1, "sample_index": 7, "rollout_n": 1, "validate": False}
    unheard = asyncio.create_task(made._run_agent_loop({}, trajectory, **told))
    for _ in range(2):
        server.engine.finish(await server.engine.arrived.get())
    await unheard
    samples.hear(made, 0)
    heard = asyncio.create_task(made._run_agent_loop({}, trajectory, **told))
    server.engine.finish(await server.engine.arrived.get())
    await server.engine.arrived.get()
    await update(server, 1)
    server.engine.finish(await server.engine.arrived.get())
    return [(await unheard).extra_fields.get("extras"), (await heard).extra_fields["extras"], server.engine.requests]


def main(source: Path, target: Path) -> None:
    """
    Run the scenarios of ``source``, and write to ``target`` what became of them.
    """
    found = {}
    for name, scenario in json.loads(source.read_text()).items():
        failure, said = "", []
        with captured(scenario) as result:
            try:
                said = asyncio.run(
                    {"server": rollout, "worker": training, "sample": sample}[scenario["process"]](scenario)
                )
            except Exception as error:  # noqa: BLE001 - the test looks at it
                traceback.print_exc()
                failure = type(error).__name__
            registration.shutdown()
        found[name] = {"failure": failure, "said": said, "workers": [], "servers": [], **result}
    target.write_text(json.dumps(found, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
