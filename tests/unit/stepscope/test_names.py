"""
The registry of names, with the literal names: a rename in code and registry alike still fails here.
"""

import ast
import pickle
import re
from pathlib import Path

from stepscope import names

LITERAL_SPANS = {
    "rl.step",
    "rl.step.process",
    "train.wait_samples",
    "train.log_prob",
    "train.update_actor",
    "weights.publish",
    "weights.load",
    "weights.wait",
    "rollout.generate",
    "rollout.pause",
    "rollout.wait",
    "validate",
    "checkpoint.save",
    "profile.opened",
    "profile.capture",
}

LITERAL_INTEGRATION_SPANS = {
    "train.reward",
    "train.ref_log_prob",
    "train.values",
    "train.advantage",
    "train.update_critic",
    "rollout.sample",
    "rollout.resume",
}

PEOPLE_NEED = {
    "STEPSCOPE_STEPS",
    "STEPSCOPE_TOOLS",
    "STEPSCOPE_LEVEL",
    "STEPSCOPE_RANKS",
    "STEPSCOPE_DIR",
    "STEPSCOPE_MAX_OVERHEAD",
    "STEPSCOPE_HTTP",
    "STEPSCOPE_DISABLED",
}


def test_span_names_are_what_they_were() -> None:
    """
    Dashboards and queries hold these names.
    """
    assert LITERAL_SPANS == {str(name) for name in names.SPANS}
    assert LITERAL_INTEGRATION_SPANS == {str(name) for name in names.INTEGRATION_SPANS}


def test_the_attributes_on_every_span_are_what_they_were() -> None:
    """
    ``param_version`` exactly so; the rest is in a namespace.
    """
    assert ["param_version", "rl.step", "rl.role", "rl.rank"] == [
        names.PARAM_VERSION,
        names.STEP,
        names.ROLE,
        names.RANK,
    ]
    assert all(
        name in {"param_version", "param_version.end"} or name.startswith(("rl.", "profile.", "gen_ai."))
        for name in names.ATTRIBUTES
    )


def test_event_names_are_what_they_were() -> None:
    """
    The change of the selection, and what it says of itself.
    """
    assert ("selection.changed",) == names.EVENTS
    assert ("steps", "revision", "source", "stopped") == tuple(
        name.removeprefix("rl.selection.") for name in names.EVENT_ATTRIBUTES
    )


def test_people_need_eight_settings() -> None:
    """
    The rest is advanced.
    """
    assert {str(name) for name in names.PEOPLE_NEED} == PEOPLE_NEED


def test_every_name_is_registered_once_and_documented() -> None:
    """
    A name that is defined but not listed would be missing from the reference pages.
    """
    spans = [*names.SPANS, *names.INTEGRATION_SPANS]
    listed = [*spans, *names.ATTRIBUTES, *names.EVENTS, *names.EVENT_ATTRIBUTES, *names.ENVIRONMENT]
    defined = [value for value in vars(names).values() if isinstance(value, names.Name)]

    assert sorted(map(str, defined)) == sorted(map(str, listed))
    for names_of_a_kind in (spans, names.ATTRIBUTES, names.ENVIRONMENT):
        assert len(set(names_of_a_kind)) == len(names_of_a_kind)
    assert all(name.help for name in listed)


def test_metrics_follow_prometheus_naming_and_carry_no_unbounded_label() -> None:
    """
    Steps, versions, pids and ids are exemplars, never labels.
    """
    for metric in names.METRICS:
        assert re.fullmatch(r"stepscope_[a-z_]+", metric.name)
        assert metric.help.endswith(".")
        assert metric.kind in {"counter", "gauge", "histogram"}
        assert (metric.kind == "counter") is metric.name.endswith("_total")
        assert not {"step", "version", "param_version", "pid", "path", "trace_id"} & set(metric.labels)


def test_a_name_travels_as_a_plain_string() -> None:
    """
    A process without stepscope can read what was pickled.
    """
    assert str is type(pickle.loads(pickle.dumps(names.RL_STEP)))


def test_which_states_are_final() -> None:
    """
    Every window ends in exactly one of them.
    """
    assert ["ready", "denied", "failed", "aborted", "expired", "lost"] == [
        state for state in names.State if state.final
    ]


def test_no_span_or_attribute_name_is_spelled_out_in_the_package() -> None:
    """
    Names that leave the process exist once. Words without a dot are names of other things too.
    """
    listed = (*names.ATTRIBUTES, *names.SPANS, *names.INTEGRATION_SPANS, *names.EVENTS, *names.EVENT_ATTRIBUTES)
    dotted = {str(name) for name in listed if "." in name}
    spelled = [
        f"{path.name}:{node.lineno}: {node.value}"
        for path in Path(names.__file__).parent.rglob("*.py")
        if path.name != "names.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in dotted
    ]

    assert [] == spelled
