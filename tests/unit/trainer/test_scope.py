"""
The no-ops that stand in for the package.
"""

import inspect
import subprocess
import sys

import stepscope
from stepscope_rollouter import scope as rollouter
from stepscope_trainer import scope as trainer


def test_the_no_ops_have_every_call_of_both_roles() -> None:
    """
    What trainer and rollouter may call is there, in the no-ops and in the package.
    """
    calls = {
        name
        for protocol in (trainer.Scope, rollouter.Scope)
        for name, member in vars(protocol).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }

    assert {"init", "shutdown", "step", "span", "aweights_loaded", "start_span"} <= calls
    assert [] == [name for name in calls if not hasattr(trainer.NoScope, name)]
    assert [] == [name for name in calls if not hasattr(stepscope, name)]
    for protocol in (trainer.Span, rollouter.Span):
        assert [] == [name for name in vars(protocol) if not name.startswith("_") and not hasattr(trainer.NoSpan, name)]


def test_the_bare_loop_never_imports_the_package() -> None:
    """
    Neither by its modules nor by loading the no-ops.
    """
    code = (
        "import sys, stepscope_trainer.job as job; job.scope.load(False).init(role='trainer');"
        "sys.exit(any(name.split('.')[0] in {'stepscope', 'opentelemetry', 'ray'} for name in sys.modules))"
    )

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode
