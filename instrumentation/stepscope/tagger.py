"""
A span processor that tags the spans of a provider that is not ours: an engine's, or the program's own.
"""

# ruff: noqa: ARG002 - the SDK names the parameters of its callbacks

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from stepscope import registration
from stepscope.complaints import complaints


class SpanTagger(SpanProcessor):
    """
    Sets ``param_version``, ``rl.step``, ``rl.role`` and ``rl.rank`` on each span as it begins.

    Add it to the provider before the processors that export: ``provider.add_span_processor(SpanTagger())``.
    """

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """
        Tag ``span``.
        """
        session = registration.session
        if session is None:
            return
        try:
            if span.is_recording():
                span.set_attributes(session.spans.placed(parent_context).tags)
        except Exception as error:  # noqa: BLE001 - an exception here would reach the training loop
            complaints.fault("tagger", error)

    def on_end(self, span: ReadableSpan) -> None:
        """
        Nothing.
        """

    def shutdown(self) -> None:
        """
        Nothing.
        """

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """
        Nothing is held here.
        """
        return True
