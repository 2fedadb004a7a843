"""
The Prometheus series that the sidecar exposes, part of the registry of :mod:`stepscope.names`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """
    A Prometheus series: its family name, kind (``counter``, ``gauge``, ``histogram``), labels and meaning.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


METRICS = (
    Metric(
        name="stepscope_param_version",
        kind="gauge",
        labels=("role",),
        help="Highest param_version reached by a process of this role.",
    ),
    Metric(
        name="stepscope_param_version_timestamp_seconds",
        kind="gauge",
        labels=("role",),
        help="Unix time at which the highest param_version of this role was reached; time() less it is its age.",
    ),
    Metric(
        name="stepscope_step_seconds",
        kind="histogram",
        labels=("role",),
        help="Seconds of rl.step.process, from entering a step to its boundary.",
    ),
    Metric(
        name="stepscope_bucket_seconds_total",
        kind="counter",
        labels=("role", "bucket"),
        help="Seconds of leaf spans by kind of time.",
    ),
    Metric(
        name="stepscope_profiling_overhead_ratio",
        kind="gauge",
        labels=("role",),
        help="(stall + slowdown) / unprofiled productive seconds, over profiled steps; absent while unknown.",
    ),
    Metric(
        name="stepscope_profiling_overhead_lower_bound_ratio",
        kind="gauge",
        labels=("role",),
        help="What that ratio is at least, with 99% confidence, also while it is unknown; absent while nothing is"
        " known.",
    ),
    Metric(
        name="stepscope_profiling_wall_overhead_ratio",
        kind="gauge",
        labels=("role",),
        help="The same on wall time; absent while unknown.",
    ),
    Metric(
        name="stepscope_profiling_stall_seconds_total",
        kind="counter",
        labels=("role", "phase"),
        help="Seconds that profiling kept the profiled process from its work, by phase.",
    ),
    Metric(
        name="stepscope_update_delay_seconds_total",
        kind="counter",
        labels=("role",),
        help="Seconds that updates of replicas waited for profilers to stop and start, asking included. Measured around"
        " the calls: what lies between the phases of the stall is in it, stall away from an update is not.",
    ),
    Metric(
        name="stepscope_windows_total",
        kind="counter",
        labels=("role", "tool", "outcome"),
        help="Windows that ended, by final state.",
    ),
    Metric(
        name="stepscope_incomplete_recordings_total",
        kind="counter",
        labels=("role", "tool", "cause"),
        help="Recordings that lack part of their step: asked (stopped, opened late, partial step) or lost.",
    ),
    Metric(name="stepscope_windows_open", kind="gauge", labels=("role",), help="Windows recording now."),
    Metric(
        name="stepscope_window_open_age_seconds",
        kind="gauge",
        labels=("role",),
        help="Age of the oldest window recording now; 0 with none.",
    ),
    Metric(
        name="stepscope_window_start_skew_seconds",
        kind="gauge",
        labels=("role",),
        help="Seconds from first to last start among ranks of this node, in the last step that several recorded.",
    ),
    Metric(
        name="stepscope_window_open_lag_seconds",
        kind="histogram",
        labels=("role",),
        help="Seconds from entering a selected step to armed, the profiler running.",
    ),
    Metric(
        name="stepscope_artifact_bytes_total",
        kind="counter",
        labels=("role", "tool"),
        help="Bytes of final artifacts.",
    ),
    Metric(
        name="stepscope_artifact_disk_bytes",
        kind="gauge",
        labels=(),
        help="Bytes of artifacts of this run on this node.",
    ),
    Metric(
        name="stepscope_artifact_disk_budget_bytes",
        kind="gauge",
        labels=(),
        help="Bytes that artifacts of this run may take on this node.",
    ),
    Metric(
        name="stepscope_artifact_disk_left_bytes",
        kind="gauge",
        labels=(),
        help="Bytes that artifacts may still take: of the budget, and of what is free less a reserve.",
    ),
    Metric(
        name="stepscope_artifact_disk_free_bytes",
        kind="gauge",
        labels=(),
        help="Bytes free in the file system of the artifacts.",
    ),
    Metric(
        name="stepscope_sample_staleness_versions",
        kind="histogram",
        labels=(),
        help="Version in force when a sample was trained on less the oldest version it was generated with.",
    ),
    Metric(
        name="stepscope_samples_unknown_version_total",
        kind="counter",
        labels=(),
        help="Samples trained on whose version of origin is unknown.",
    ),
    Metric(
        name="stepscope_reward",
        kind="gauge",
        labels=("role",),
        help="Mean reward (rl.reward) of the last step whose spans tell one, without validation; absent with none.",
    ),
    Metric(
        name="stepscope_spans_received_total",
        kind="counter",
        labels=(),
        help="Spans received and made durable.",
    ),
    Metric(
        name="stepscope_spans_forwarded_total",
        kind="counter",
        labels=(),
        help="Spans that the upstream accepted.",
    ),
    Metric(
        name="stepscope_spans_dropped_total",
        kind="counter",
        labels=("reason",),
        help="Spans lost, by reason.",
    ),
    Metric(name="stepscope_spans_pending", kind="gauge", labels=(), help="Spans received and not yet forwarded."),
    Metric(
        name="stepscope_forward_lag_seconds",
        kind="gauge",
        labels=(),
        help="Seconds since the oldest span that is not forwarded was received; 0 with none.",
    ),
    Metric(name="stepscope_processes", kind="gauge", labels=("role",), help="Registered processes alive."),
    Metric(
        name="stepscope_missing_ranks",
        kind="gauge",
        labels=("role",),
        help="Expected recordings that were not made in the last decided selected step.",
    ),
    Metric(
        name="stepscope_finalise_cpu_seconds_total",
        kind="counter",
        labels=(),
        help="CPU seconds spent finalising, outside the profiled processes.",
    ),
    Metric(
        name="stepscope_queue_length",
        kind="gauge",
        labels=("queue",),
        help="Waiting in the sidecar: writes (store), spans not read into rows (index), closed windows (finalise).",
    ),
    Metric(name="stepscope_store_bytes", kind="gauge", labels=(), help="Bytes of the store's files."),
    Metric(
        name="stepscope_sidecar_start_timestamp_seconds",
        kind="gauge",
        labels=(),
        help="Unix time at which this sidecar began.",
    ),
    Metric(
        name="stepscope_sidecar_resident_memory_bytes",
        kind="gauge",
        labels=(),
        help="Memory that this sidecar has in use.",
    ),
    Metric(
        name="stepscope_sidecar_cpu_seconds_total",
        kind="counter",
        labels=(),
        help="CPU seconds of this sidecar, without its children.",
    ),
    Metric(
        name="stepscope_sidecar_errors_total", kind="counter", labels=(), help="Errors that this sidecar has logged."
    ),
    Metric(
        name="stepscope_sidecar_last_error_timestamp_seconds",
        kind="gauge",
        labels=(),
        help="Unix time of the last of them; absent with none.",
    ),
)
