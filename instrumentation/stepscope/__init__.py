"""
Profile exactly the policy versions you name, and find the recording from the trace.

In a trainer: ``init(role="trainer", rank=rank)``, ``with step():`` around each step, ``span()`` where you like, and
``weights_published(version)`` as the last work of the step. In a rollouter: ``init(role="rollouter", rank=rank)``,
``weights_loaded(version)`` and ``weights_loading()`` around each update. Everything else is optional.
"""

from typing import TYPE_CHECKING

from stepscope.errors import ConfigurationError, StepscopeError
from stepscope.registration import init, shutdown
from stepscope.sdk import (
    ashutdown,
    astart_profiling,
    astop_profiling,
    attached,
    aweights_loaded,
    aweights_loading,
    aweights_published,
    consumed,
    current_step,
    current_version,
    inject,
    link,
    otlp_endpoint,
    register_profiler,
    span,
    start_profiling,
    start_span,
    step,
    stop_profiling,
    timings,
    tracer,
    weights_loaded,
    weights_loading,
    weights_published,
)

if TYPE_CHECKING:
    from stepscope.tagger import SpanTagger

__all__ = [
    "ConfigurationError",
    "SpanTagger",
    "StepscopeError",
    "ashutdown",
    "astart_profiling",
    "astop_profiling",
    "attached",
    "aweights_loaded",
    "aweights_loading",
    "aweights_published",
    "consumed",
    "current_step",
    "current_version",
    "init",
    "inject",
    "link",
    "otlp_endpoint",
    "register_profiler",
    "shutdown",
    "span",
    "start_profiling",
    "start_span",
    "step",
    "stop_profiling",
    "timings",
    "tracer",
    "weights_loaded",
    "weights_loading",
    "weights_published",
]


def __getattr__(name: str) -> object:
    """
    The span processor, which needs the OpenTelemetry SDK, comes when it is asked for.
    """
    if name == "SpanTagger":
        from stepscope.tagger import SpanTagger

        return SpanTagger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
