"""
The command that says what can be profiled on this machine.
"""

import json
from typing import Annotated

import typer

from stepscope.settings import read
from stepscope_sidecar import render
from stepscope_sidecar.commands.runs import JsonOption

VerlOption = Annotated[
    bool, typer.Option("--verl", help="Say what of the installed verl would be instrumented, and what is not found.")
]


def check(as_json: JsonOption = False, verl: VerlOption = False) -> None:
    """
    Say what can be profiled here, and for what cannot: why.
    """
    from stepscope_sidecar import check

    found = check.verl() if verl else check.capabilities(read())
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif verl:
        render.print_verl(found)
    else:
        render.print_capabilities(found)
