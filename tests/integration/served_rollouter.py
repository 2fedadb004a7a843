"""
A rollouter whose engine is a server beside it: takes versions in, and asks for completions in between.

Run as ``python -m tests.integration.served_rollouter``. It has neither torch nor an engine of its own. Of the settings
it reads the server's address alone, for what it asks it to generate.
"""

import argparse
import asyncio
import json
import os
import sys
import urllib.request
from http import HTTPStatus

import stepscope

GENERATION_DEADLINE = 120.0
"""Seconds for a few tokens of a small model on a busy machine, the first of which compiles a little."""


def say(text: str) -> None:
    """
    Print a line at once.
    """
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def generate(model: str) -> None:
    """
    Have the server complete a prompt.
    """
    if not model:
        return
    body = {"model": model, "prompt": "1+2=", "max_tokens": 8, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(
        f"{os.environ['STEPSCOPE_HTTP_PROFILER_URL']}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with (
        stepscope.span("rollout.generate", bucket="productive", request=True),
        urllib.request.urlopen(request, timeout=GENERATION_DEADLINE) as answer,
    ):
        assert HTTPStatus.OK == answer.status


def within(options: argparse.Namespace, version: int) -> None:
    """
    What happens while a version is in force.
    """
    if version not in options.idle:
        generate(options.model)
    if options.stepwise:
        say(f"version {version}")
        sys.stdin.readline()


async def aroll(options: argparse.Namespace) -> None:
    """
    With the asynchronous boundary calls.
    """
    for version in range(options.updates + 1):
        if version:
            await stepscope.aweights_loading()
        await stepscope.aweights_loaded(version)
        await asyncio.to_thread(within, options, version)
    if not options.leave_open:
        await stepscope.aweights_loading()


def roll(options: argparse.Namespace) -> None:
    """
    With the plain ones.
    """
    for version in range(options.updates + 1):
        if version:
            stepscope.weights_loading()
        stepscope.weights_loaded(version)
        within(options, version)
    if not options.leave_open:
        stepscope.weights_loading()


def main() -> None:
    """
    As many updates as asked for.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=2)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--stepwise", action="store_true")
    parser.add_argument("--leave-open", action="store_true")
    parser.add_argument("--model", default="")
    parser.add_argument("--idle", type=int, nargs="*", default=[])
    options = parser.parse_args()
    stepscope.init(role="rollouter", total_steps=options.updates + 1)
    if options.plain:
        roll(options)
    else:
        asyncio.run(aroll(options))
    say("done")


if __name__ == "__main__":
    main()
