"""
Every name that leaves a process: spans, attributes, metrics, environment variables, states and reasons.

Owns the names and what they mean. Call sites pass these objects, so a typo is an ``ImportError``; the reference
pages are generated from them, and a test holds registry, code and docs together in both directions.
"""

from dataclasses import dataclass

from stepscope.outcomes import Bucket as Bucket
from stepscope.outcomes import Incomplete as Incomplete
from stepscope.outcomes import Level as Level
from stepscope.outcomes import Reason as Reason
from stepscope.outcomes import State as State

PARAM_VERSION_HELP = "count of completed update_weights calls whose result is in force; 0 before the first"


class Name(str):
    """
    A name that leaves the process, carrying its own documentation.
    """

    __slots__ = ("help",)
    help: str

    def __new__(cls, name: str, text: str) -> "Name":
        """
        Make the name ``name``, documented by ``text``.
        """
        self = super().__new__(cls, name)
        self.help = text
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """
        Travel between processes as a plain string.
        """
        return (str, (str(self),))


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """
    A Prometheus series: its family name, kind (``counter``, ``gauge``, ``histogram``), labels and meaning.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


# Spans ---------------------------------------------------------------------------------------------------------

RL_STEP = Name("rl.step", "one step of the run, the root of its trace; rank 0 of the trainer emits it")
RL_STEP_PROCESS = Name("rl.step.process", "one process's part of a step; the window of a selected step lies on it")
TRAIN_WAIT_SAMPLES = Name("train.wait_samples", "the trainer waits for samples (idle)")
TRAIN_LOG_PROB = Name("train.log_prob", "log-probabilities of the samples under the trainer's weights")
TRAIN_UPDATE_ACTOR = Name("train.update_actor", "forward, backward and optimizer step of one mini-batch")
WEIGHTS_PUBLISH = Name("weights.publish", "the trainer hands the new weights over")
WEIGHTS_WAIT = Name("weights.wait", "a trainer rank waits until every live replica has acknowledged the weights (idle)")
WEIGHTS_LOAD = Name("weights.load", "a replica takes the new weights in")
ROLLOUT_GENERATE = Name("rollout.generate", "one request, from its start to its end, however many versions it saw")
ROLLOUT_PAUSE = Name("rollout.pause", "a replica brings generation to a halt before an update")
ROLLOUT_WAIT = Name("rollout.wait", "a replica has nothing to do: queue full, or weights too old (idle)")
VALIDATE = Name("validate", "validation after an update; belongs to the step after it")
CHECKPOINT_SAVE = Name("checkpoint.save", "a checkpoint after an update; belongs to the step after it")
PROFILE_OPENED = Name("profile.opened", "zero-length: a window has started to record")
PROFILE_CAPTURE = Name("profile.capture", "the recording of one window, from its start to its end")

SPANS = (
    RL_STEP,
    RL_STEP_PROCESS,
    TRAIN_WAIT_SAMPLES,
    TRAIN_LOG_PROB,
    TRAIN_UPDATE_ACTOR,
    WEIGHTS_PUBLISH,
    WEIGHTS_WAIT,
    WEIGHTS_LOAD,
    ROLLOUT_GENERATE,
    ROLLOUT_PAUSE,
    ROLLOUT_WAIT,
    VALIDATE,
    CHECKPOINT_SAVE,
    PROFILE_OPENED,
    PROFILE_CAPTURE,
)

# Attributes ----------------------------------------------------------------------------------------------------

PARAM_VERSION = Name("param_version", f"int, on every span: {PARAM_VERSION_HELP}, when the span began")
PARAM_VERSION_END = Name("param_version.end", "int: the version in force when the span ended, where it differs")
STEP = Name("rl.step", "int, on every span: the step, always param_version + 1 of the boundary it belongs to")
ROLE = Name("rl.role", "str, on every span: trainer, rollouter, or another role named by init()")
RANK = Name("rl.rank", "int, on every span: the process's rank in its role")
BUCKET = Name("rl.bucket", "str, on leaf spans: productive, overhead, idle or wasted")
WAIT_FOR = Name("rl.wait.for", "str, on idle spans: samples, weights, acknowledgement, capacity, ranks")
PARTIAL = Name("rl.step.partial", "bool: work after the last update; it belongs to no step of the run")
GLOBAL_STEP = Name("rl.global_step", "int, on mini-batches: mini-batches since the run began, from 1")
MINI_BATCH = Name("rl.mini_batch", "int, on mini-batches: its number within the step, from 0")
SAMPLES = Name("rl.samples", "int: samples worked on in this span")
TOKENS = Name("rl.tokens", "int: tokens worked on in this span")
WORK = Name("rl.work", "float: units of work in this span, what slowdown is measured per")
REWARD = Name("rl.reward", "float: mean reward of the samples of this span")
SAMPLE_ID = Name("rl.sample.id", "str: the sample, as the sample table names it")
STALENESS = Name("rl.staleness", "float: mean of the version in force less the version generated with, in versions")
SAMPLES_DROPPED = Name("rl.samples.dropped", "int, on train.wait_samples: samples dropped as too stale meanwhile")
REQUESTS_UNTRACED = Name("rl.requests.untraced", "int, on rl.step.process: requests beyond the span budget")
RUN = Name("rl.run", "str, resource: the name of the training job")
ATTEMPT = Name("rl.attempt", "str, resource: the start of the job that this process belongs to")
RESUMED_FROM = Name("rl.resumed_from", "int, resource: the version this attempt resumed from")
WINDOW_ID = Name("profile.window.id", "str: the window, as `stepscope windows` lists it")
TOOL = Name("profile.tool", "str: the profiler that recorded")
LEVEL = Name("profile.level", "str: device, spans, ops or full")
LEVEL_FALLBACK = Name("profile.level_fallback", "str: the level that was asked for, where another had to be used")
ARTIFACT_URI = Name("profile.artifact.uri", "str: stepscope: and the path of the artifact below STEPSCOPE_DIR")
ARTIFACT_URL = Name("profile.artifact.url", "str: where the sidecar serves the artifact")
ARTIFACT_BYTES = Name("profile.artifact.bytes", "int: size of the final file in bytes")
ARTIFACT_SHA256 = Name("profile.artifact.sha256", "str: SHA-256 of the final file, lower-case hex")
WINDOW_STATE = Name("profile.state", "str: the final state of the window")
WINDOW_REASON = Name("profile.reason", "str: why the window closed, from a closed list")
COMPLETE = Name("profile.complete", "bool: whether the recording holds the whole of its step")
INCOMPLETE_REASON = Name("profile.incomplete.reason", "str: what an incomplete recording lacks")
VERSION_AT_CLOSE = Name("profile.version_at_close", "int: the version in force when the window closed")
STALL_OPEN = Name("profile.stall.open", "float, seconds: asking the sidecar")
STALL_START = Name("profile.stall.start", "float, seconds: starting the profiler")
STALL_STOP = Name("profile.stall.stop", "float, seconds: stopping the profiler")
STALL_EXPORT = Name("profile.stall.export", "float, seconds: writing the raw recording")

ATTRIBUTES = (
    PARAM_VERSION,
    PARAM_VERSION_END,
    STEP,
    ROLE,
    RANK,
    BUCKET,
    WAIT_FOR,
    PARTIAL,
    GLOBAL_STEP,
    MINI_BATCH,
    SAMPLES,
    TOKENS,
    WORK,
    REWARD,
    SAMPLE_ID,
    STALENESS,
    SAMPLES_DROPPED,
    REQUESTS_UNTRACED,
    RUN,
    ATTEMPT,
    RESUMED_FROM,
    WINDOW_ID,
    TOOL,
    LEVEL,
    LEVEL_FALLBACK,
    ARTIFACT_URI,
    ARTIFACT_URL,
    ARTIFACT_BYTES,
    ARTIFACT_SHA256,
    WINDOW_STATE,
    WINDOW_REASON,
    COMPLETE,
    INCOMPLETE_REASON,
    VERSION_AT_CLOSE,
    STALL_OPEN,
    STALL_START,
    STALL_STOP,
    STALL_EXPORT,
)

# Environment ---------------------------------------------------------------------------------------------------

STEPS = Name(
    "STEPSCOPE_STEPS",
    "steps to record: N, N-M, every:K, every:K@S, vN (the step during which version N is in force); comma-separated",
)
TOOLS = Name("STEPSCOPE_TOOLS", "profiler, for all roles or by role: torch, or trainer=torch,rollouter=torch")
LEVEL_ENV = Name("STEPSCOPE_LEVEL", "how much to record: device, spans, ops or full")
RANKS = Name("STEPSCOPE_RANKS", "ranks to record: 0, all, 0-3, or by role: trainer=0-3,rollouter=0")
DIR = Name("STEPSCOPE_DIR", "where runs are kept")
MAX_OVERHEAD = Name(
    "STEPSCOPE_MAX_OVERHEAD", "deny further windows once the run's measured overhead ratio exceeds this"
)
HTTP = Name("STEPSCOPE_HTTP", "host:port of the sidecar's pages, API and /metrics; port 0 takes a free one")
DISABLED = Name("STEPSCOPE_DISABLED", "1: start nothing at all")

RUN_ENV = Name("STEPSCOPE_RUN", "name of the run")
ATTEMPT_ENV = Name("STEPSCOPE_ATTEMPT", "id of this start of the run; made once where the run is started")
SOCKET = Name("STEPSCOPE_SOCKET", "path of the control socket, for a sidecar in a container of its own")
CAP_SECONDS = Name("STEPSCOPE_CAP_SECONDS", "longest window, in seconds")
CAP_BYTES = Name(
    "STEPSCOPE_CAP_BYTES",
    "most bytes of mirrored spans in one window's raw recording, 300 reckoned for each; operators are not counted",
)
CAP_MEMORY = Name("STEPSCOPE_CAP_MEMORY", "largest growth of the process's resident memory within a window, in bytes")
DISK_BUDGET = Name(
    "STEPSCOPE_DISK_BUDGET",
    "bytes of artifacts that a node may keep for a run; checked before a window opens",
)
REQUEST_SPANS = Name("STEPSCOPE_REQUEST_SPANS", "per-request spans emitted per step and process outside selected steps")
OTLP_HTTP = Name("STEPSCOPE_OTLP_HTTP", "host:port of the sidecar's OTLP/HTTP receiver")
OTLP_GRPC = Name("STEPSCOPE_OTLP_GRPC", "host:port of the sidecar's OTLP/gRPC receiver, or off")
TOKEN_FILE = Name("STEPSCOPE_TOKEN_FILE", "file with the token that a non-loopback binding demands")

PEOPLE_NEED = (STEPS, TOOLS, LEVEL_ENV, RANKS, DIR, MAX_OVERHEAD, HTTP, DISABLED)
ADVANCED = (
    RUN_ENV,
    ATTEMPT_ENV,
    SOCKET,
    CAP_SECONDS,
    CAP_BYTES,
    CAP_MEMORY,
    DISK_BUDGET,
    REQUEST_SPANS,
    OTLP_HTTP,
    OTLP_GRPC,
    TOKEN_FILE,
)
ENVIRONMENT = PEOPLE_NEED + ADVANCED

# Metrics -------------------------------------------------------------------------------------------------------

METRICS = (
    Metric(
        name="stepscope_param_version",
        kind="gauge",
        labels=("role",),
        help="Highest param_version reached by a process of this role.",
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
        name="stepscope_windows_total",
        kind="counter",
        labels=("role", "tool", "outcome"),
        help="Windows that ended, by final state.",
    ),
    Metric(name="stepscope_windows_open", kind="gauge", labels=("role",), help="Windows recording now."),
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
)
