"""
The entry point of the group ``verl.plugins``: importing this module is all that verl does with it.

Owns whether anything is to be done at all. verl is in the middle of its own import then, and swallows what is raised
here; so nothing of verl is imported, and what goes wrong is said in stepscope's own log.
"""

import os
from collections.abc import Mapping

from stepscope import names
from stepscope.complaints import complaints

PREFIX = "STEPSCOPE_"
TESTS = "STEPSCOPE_TEST_"
OFF = frozenset({"1", "true", "yes", "on"})


def inert(environment: Mapping[str, str]) -> str:
    """
    Why nothing is to be instrumented; "" where stepscope is configured.
    """
    if environment.get(names.DISABLED, "").strip().lower() in OFF:
        return f"{names.DISABLED} is set"
    if not any(
        name.startswith(PREFIX) and not name.startswith(TESTS) and value.strip() for name, value in environment.items()
    ):
        return f"no {PREFIX} variable is set"
    return ""


def install() -> None:
    """
    Wait for the modules of verl that the table names. Twice is once.
    """
    if inert(os.environ):
        return
    try:
        from stepscope.integrations.verl import hooks, patching, targets

        hooks.install(targets.by_module(), patching.instrument)
    except Exception as error:  # noqa: BLE001 - verl would swallow it without a word
        complaints.fault("the verl plugin", error)


install()
