"""
Which run of an experiment tracker this process logs to, so that the trace leads there.

Owns where W&B, MLflow and Trackio say it: the environment first, else the module, where the program has imported it.
Imports none of them, and asks nobody over a network.
"""

from collections.abc import Callable, Mapping

from stepscope import names

MAX_ID = 200
"""Characters of a run's id; theirs have 8 to 36."""

ENVIRONMENT: dict[str, str] = {str(names.WANDB_RUN): "WANDB_RUN_ID", str(names.MLFLOW_RUN): "MLFLOW_RUN_ID"}
"""The trackers' own variables, by the attribute."""


def _wandb(module: object) -> object:
    return module.run.id  # type: ignore[attr-defined]


def _mlflow(module: object) -> object:
    return module.active_run().info.run_id  # type: ignore[attr-defined]


def _trackio(module: object) -> object:
    run = module.current_run.get()  # type: ignore[attr-defined]
    # Its first versions had a name and no id.
    return getattr(run, "id", None) or run.name


MODULES: dict[str, tuple[str, Callable[[object], object]]] = {
    str(names.WANDB_RUN): ("wandb", _wandb),
    str(names.MLFLOW_RUN): ("mlflow.tracking.fluent", _mlflow),
    str(names.TRACKIO_RUN): ("trackio.context_vars", _trackio),
}
"""The module that knows the run that is active now, and how to ask it."""


def runs(environment: Mapping[str, str], modules: Mapping[str, object]) -> dict[str, str]:
    """
    The run of each tracker where it is known, by attribute. Never raises.
    """
    found: dict[str, str] = {}
    for attribute, (name, ask) in MODULES.items():
        told = environment.get(ENVIRONMENT.get(attribute, ""), "").strip() or _active(modules.get(name), ask)
        if told:
            found[attribute] = told[:MAX_ID]
    return found


def _active(module: object, ask: Callable[[object], object]) -> str:
    if module is None:
        return ""
    try:
        answer = ask(module)
    except Exception:  # noqa: BLE001 - no run is active, or it is another version of the tracker
        return ""
    return answer if isinstance(answer, str) else ""
