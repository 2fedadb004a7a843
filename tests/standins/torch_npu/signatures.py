"""
The signatures of the real wheel, put on the stand-in's callables: a call that the real one would refuse, fails.
"""

import functools
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FACTS = json.loads((Path(__file__).parent.parent / "torch_npu-2.13.0.json").read_text(encoding="utf-8"))
"""What ``tests/standins/signatures.py`` has read from the wheel."""


def real(path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """
    Give a function the signature of the real ``path``; its body gets every argument, and by name.

    Where the real one keeps what it raises to itself, so does this: it prints, and answers ``None``.
    """
    facts = FACTS["callables"][path]
    signature = inspect.signature(eval(f"lambda {facts['parameters']}: None"))

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: object, **named: object) -> Any:
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            return body(**bound.arguments)

        if not facts["swallows"]:
            return checked

        @functools.wraps(checked)
        def silent(*arguments: object, **named: object) -> Any:
            try:
                return checked(*arguments, **named)
            except Exception as error:  # noqa: BLE001 - as the real one does
                print(f"[ERROR] Call {body.__name__} failed. Exception: {error}", file=sys.stderr)
                return None

        return silent

    return decorate


def constants(kind: str) -> type:
    """
    A class of constants of the real wheel.
    """
    return type(kind, (), FACTS["constants"][kind])
