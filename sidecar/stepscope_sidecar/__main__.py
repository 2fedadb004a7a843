"""
``python -m stepscope_sidecar``: the sidecar process of one attempt. Settings come from the environment.

It runs at an ordinary priority: on a node whose cores are all busy, a niced one answers too late for a window to open
(measured: seconds, at a load of nine on two cores). What takes CPU, finalising, stands back in processes of its own.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable

from stepscope import names
from stepscope.errors import ConfigurationError, StepscopeError
from stepscope.settings import read

SWITCH_INTERVAL = 0.0005
"""Seconds. An answer is due in a fraction of a millisecond, and must not wait 5 ms for a thread that reads."""


def main() -> int:
    """
    Serve; the exit code. Errors of ours are one line, never a stack trace.
    """
    parser = argparse.ArgumentParser(prog="python -m stepscope_sidecar", description=__doc__)
    parser.add_argument(
        "--attended",
        choices=("yes", "no", "parent"),
        default="no",
        help="yes: whoever started it ends it; no: it ends by itself; parent: by itself once its parent has gone",
    )
    arguments = parser.parse_args()
    for noisy in ("uvicorn.error", "httpx"):
        # A line for every request, of which there is one every five seconds.
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = read()
        if settings.disabled:
            return 0
        for name, value in ((names.RUN_ENV, settings.run), (names.ATTEMPT_ENV, settings.attempt)):
            if not value:
                raise ConfigurationError(f"{name} is not set; `stepscope run` and init() set it")
        from stepscope_sidecar.app import serve

        sys.setswitchinterval(SWITCH_INTERVAL)
        return serve(settings, attended=_attended(arguments.attended), environment=dict(os.environ))
    except StepscopeError as error:
        sys.stderr.write(f"stepscope sidecar: {error}\n")
        return 2


def _attended(how: str) -> Callable[[], bool]:
    parent = os.getppid()
    return lambda: how == "yes" or (how == "parent" and os.getppid() == parent)


if __name__ == "__main__":
    raise SystemExit(main())
