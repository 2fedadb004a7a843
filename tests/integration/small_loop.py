"""
The smallest fully-asynchronous run: a trainer and a rollouter, each a process, with marks to tell what was recorded.

Run as ``python -m tests.integration.small_loop``. Every mini-batch and every request begins an annotation that has
its step in its name, and so have validation and checkpoints. After each boundary a row says whether a profiler is on.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import torch

import stepscope
from tests.integration.programs import MARK

GLANCE = 0.002
"""Seconds that the rollouter waits for a new version between two requests."""


class DataEndedError(Exception):
    """
    There are no more samples: how such loops leave a step that they cannot finish.
    """


@contextmanager
def marked(name: str) -> Iterator[None]:
    """
    Put a mark around some work.
    """
    with torch.profiler.record_function(MARK + name):
        torch.ones(8, 8).matmul(torch.ones(8, 8)).sum()
        yield


def say(role: str, event: str) -> None:
    """
    Print a row.
    """
    on = torch._C._autograd._profiler_enabled()
    # One write, so that rows of two processes do not mix.
    sys.stdout.write(json.dumps({"role": role, "event": event, "profiler_on": on}) + "\n")
    sys.stdout.flush()


def identify(role: str, options: argparse.Namespace) -> None:
    """
    Register, resumed where that is asked for.
    """
    stepscope.init(
        role=role,
        param_version=options.resume,
        resumed_from=options.resume or None,
        total_steps=None if options.unknown_end else options.steps,
    )


def validate(version: int) -> None:
    """
    Validate ``version``: work of the step after it.
    """
    with stepscope.span("validate", after_version=version), marked(f"validate {version}"):
        pass


def roll(link: Connection, options: argparse.Namespace) -> None:
    """
    Generate until told to end; take new versions in as they come.
    """
    identify("rollouter", options)
    version = options.resume
    validate(version)
    stepscope.weights_loaded(version)
    link.send(version)
    model = torch.nn.Linear(8, 8)
    while True:
        try:
            told = link.recv() if link.poll(GLANCE) else version
        except EOFError:
            return
        if told is None:
            say("rollouter", "told to end")
            return
        if isinstance(told, str):
            told = int(told)
            stepscope.weights_loading()
            say("rollouter", "loading")
            if told != version:
                validate(told)
            version = told
            stepscope.weights_loaded(version)
            link.send(version)
        with stepscope.span("rollout.generate", bucket="productive"), marked(f"generate {stepscope.current_step()}"):
            model(torch.ones(2, 8))


class Trainer:
    """
    Trains, and hands each version to the rollouter behind ``link``.
    """

    def __init__(self, link: Connection, options: argparse.Namespace) -> None:
        self._link = link
        self._options = options
        self._model = torch.nn.Linear(8, 8)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.1)
        self._failed = False

    def run(self) -> None:
        """
        All steps; where data ends, or a step fails, as told.
        """
        options, step = self._options, self._options.resume + 1
        while step <= options.steps:
            try:
                with stepscope.step():
                    self._train(step)
                    self.publish(step)
                step += 1
            except DataEndedError:
                say("trainer", "data ended")
                break
            except MemoryError:
                say("trainer", "failed")
                continue
            say("trainer", "published")
            validate(step - 1)
            with stepscope.span("checkpoint.save", after_version=step - 1), marked(f"checkpoint {step - 1}"):
                pass

    def publish(self, version: int) -> None:
        """
        Have the rollouter load ``version``, and wait for its acknowledgement.
        """
        with stepscope.span("weights.publish", bucket="overhead"):
            self._link.send(str(version))
            assert version == self._link.recv()
        stepscope.weights_published(version)

    def _train(self, step: int) -> None:
        options = self._options
        for mini_batch in range(options.mini_batches):
            if step == options.ends_in and mini_batch == 1:
                raise DataEndedError
            with (
                stepscope.span("train.update_actor", bucket="productive", attributes={"rl.mini_batch": mini_batch}),
                marked(f"train {step} {mini_batch}"),
            ):
                self._model(torch.ones(4, 8)).square().sum().backward()
                if step == options.fails_in and not self._failed:
                    self._failed = True
                    raise MemoryError("what an accelerator says when it is full")
                self._optimizer.step()


def main() -> None:
    """
    Both processes, until the last step or until data ends.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--mini-batches", type=int, default=2)
    parser.add_argument("--resume", type=int, default=0)
    parser.add_argument("--ends-in", type=int, default=0)
    parser.add_argument("--fails-in", type=int, default=0)
    parser.add_argument("--unknown-end", action="store_true")
    parser.add_argument("--last-update-twice", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    identify("trainer", options)
    rollouter = context.Process(target=roll, args=(theirs, options))
    rollouter.start()
    theirs.close()
    assert options.resume == ours.recv()
    trainer = Trainer(ours, options)
    validate(options.resume)
    trainer.run()
    if options.last_update_twice:
        trainer.publish(options.steps)
        say("trainer", "published again")
    ours.send(None)
    rollouter.join()
    say("trainer", f"rollouter ended with {rollouter.exitcode}")


if __name__ == "__main__":
    main()
