"""
Every name that leaves a process: spans, attributes, metrics, environment variables, states and reasons.

Owns the names and what they mean. Call sites pass these objects, so a typo is an ``ImportError``; the reference
pages are generated from them, and a test holds registry, code and docs together in both directions.
"""

from stepscope.outcomes import Bucket as Bucket
from stepscope.outcomes import Incomplete as Incomplete
from stepscope.outcomes import Level as Level
from stepscope.outcomes import Reason as Reason
from stepscope.outcomes import State as State
from stepscope.outcomes import Tool as Tool
from stepscope.series import METRICS as METRICS
from stepscope.series import Metric as Metric

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

TRAIN_REWARD = Name("train.reward", "rewards of the samples, where the trainer computes them")
TRAIN_REF_LOG_PROB = Name("train.ref_log_prob", "log-probabilities of the samples under the reference policy")
TRAIN_VALUES = Name("train.values", "the critic's values of the samples")
TRAIN_ADVANTAGE = Name("train.advantage", "advantages and returns of the samples")
TRAIN_UPDATE_CRITIC = Name(
    "train.update_critic", "forward, backward and optimizer step of the critic on one mini-batch"
)
ROLLOUT_SAMPLE = Name(
    "rollout.sample", "one sample from its prompt to its reward, above its requests; may see several versions"
)
ROLLOUT_RESUME = Name("rollout.resume", "a replica takes generation up again after an update")

INTEGRATION_SPANS = (
    TRAIN_REWARD,
    TRAIN_REF_LOG_PROB,
    TRAIN_VALUES,
    TRAIN_ADVANTAGE,
    TRAIN_UPDATE_CRITIC,
    ROLLOUT_SAMPLE,
    ROLLOUT_RESUME,
)
"""Of integrations: what the reference job has no phase for."""

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
COMPLETION_VERSIONS = Name(
    "rl.completion.versions",
    "str[], on rollout.generate: for each completion, which version generated which of its tokens: v3[0:5] v4[5:9]",
)
STALENESS = Name("rl.staleness", "float: mean of the version in force less the oldest one generated with, in versions")
SAMPLES_DROPPED = Name("rl.samples.dropped", "int, on train.wait_samples: samples dropped as too stale meanwhile")
REQUESTS_UNTRACED = Name("rl.requests.untraced", "int, on rl.step.process: requests beyond the span budget")
RUN = Name("rl.run", "str, resource: the name of the training job")
ATTEMPT = Name("rl.attempt", "str, resource: the start of the job that this process belongs to")
RESUMED_FROM = Name("rl.resumed_from", "int, resource: the version this attempt resumed from")
WANDB_RUN = Name("rl.tracker.wandb", "str, resource: id of the W&B run that this process logs to, where it is known")
MLFLOW_RUN = Name("rl.tracker.mlflow", "str, resource: id of the MLflow run that is active, where it is known")
TRACKIO_RUN = Name("rl.tracker.trackio", "str, resource: id or name of the Trackio run that is active, where known")
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
LAST_STEP = Name("profile.last_step", "int: the last step in the recording, where consecutive steps share it")

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
    COMPLETION_VERSIONS,
    STALENESS,
    SAMPLES_DROPPED,
    REQUESTS_UNTRACED,
    RUN,
    ATTEMPT,
    RESUMED_FROM,
    WANDB_RUN,
    MLFLOW_RUN,
    TRACKIO_RUN,
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
    LAST_STEP,
)

# Events ---------------------------------------------------------------------------------------------------------

SELECTION_CHANGED = Name(
    "selection.changed", "on rl.step.process: other steps are selected, or all recording is stopped, from then on"
)

SELECTION_STEPS = Name("rl.selection.steps", "str, on selection.changed: the steps that are selected from then on")
SELECTION_REVISION = Name("rl.selection.revision", "int, on selection.changed: its number within the attempt")
SELECTION_SOURCE = Name("rl.selection.source", "str, on selection.changed: what changed it: api or file")
SELECTION_STOPPED = Name("rl.selection.stopped", "bool, on selection.changed: whether all recording is stopped")

EVENTS = (SELECTION_CHANGED,)
EVENT_ATTRIBUTES = (SELECTION_STEPS, SELECTION_REVISION, SELECTION_SOURCE, SELECTION_STOPPED)

# Environment ---------------------------------------------------------------------------------------------------

STEPS = Name(
    "STEPSCOPE_STEPS",
    "steps to record: N, N-M, every:K, every:K@S, vN (the step during which version N is in force); comma-separated",
)
TOOLS = Name("STEPSCOPE_TOOLS", "profiler, for all roles or by role: torch, or trainer=torch,rollouter=vllm")
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
NODE = Name("STEPSCOPE_NODE", "name of this node where the host name does not tell it apart; no two nodes share one")
SOCKET = Name("STEPSCOPE_SOCKET", "path of the control socket, for a sidecar in a container of its own")
STEPS_FILE = Name(
    "STEPSCOPE_STEPS_FILE",
    "file with the steps to record, watched while the run goes on; what it says last holds, as what people say does",
)
CONTINUOUS = Name(
    "STEPSCOPE_CONTINUOUS", "1: consecutive selected steps share one window per process; by default each has its own"
)
REPLICA_STOP = Name(
    "STEPSCOPE_REPLICA_STOP",
    "when a replica's profiler stops: before the update that ends its step, or after it, once generation has resumed",
)
CAP_SECONDS = Name("STEPSCOPE_CAP_SECONDS", "longest window, in seconds")
CAP_BYTES = Name(
    "STEPSCOPE_CAP_BYTES",
    "most bytes of a window's raw recording: 300 for each span, operators by the pace of the process's last recording",
)
CAP_MEMORY = Name("STEPSCOPE_CAP_MEMORY", "largest growth of the process's resident memory within a window, in bytes")
BOUNDARY_SECONDS = Name(
    "STEPSCOPE_BOUNDARY_SECONDS", "longest wait of a selected step's beginning for the sidecar's answer, in seconds"
)
DISK_BUDGET = Name(
    "STEPSCOPE_DISK_BUDGET",
    "bytes of artifacts that a node may keep for a run; checked before a window opens",
)
KEEP_SECONDS = Name(
    "STEPSCOPE_KEEP_SECONDS",
    "how long recordings are kept, in seconds since their windows were closed; those of a step go together",
)
KEEP_BYTES = Name(
    "STEPSCOPE_KEEP_BYTES",
    "bytes of recordings of a run that a node keeps: beyond them the oldest steps go, never the newest one",
)
REQUEST_SPANS = Name("STEPSCOPE_REQUEST_SPANS", "per-request spans emitted per step and process outside selected steps")
OTLP_HTTP = Name("STEPSCOPE_OTLP_HTTP", "host:port of the sidecar's OTLP/HTTP receiver")
OTLP_GRPC = Name("STEPSCOPE_OTLP_GRPC", "host:port of the sidecar's OTLP/gRPC receiver, or off")
ARTIFACTS = Name(
    "STEPSCOPE_ARTIFACTS",
    "object store that each node's sidecar copies final artifacts to, as fsspec names it: s3://bucket/runs",
)
TOKEN_FILE = Name("STEPSCOPE_TOKEN_FILE", "file with the token that a non-loopback binding demands")
TRACE_VIEW = Name(
    "STEPSCOPE_TRACE_VIEW", "where a trace view shows a trace, for links on the pages: an address with {trace_id} in it"
)
VIEWER = Name(
    "STEPSCOPE_VIEWER",
    "address of a viewer that the pages may hand recordings to in the browser, such as https://ui.perfetto.dev",
)
HTTP_PROFILER_URL = Name(
    "STEPSCOPE_HTTP_PROFILER_URL",
    "tool http: base address of the inference server of rank 0, of rank 1, …; ROLE=URL for a role; comma-separated",
)
HTTP_PROFILER_KIND = Name(
    "STEPSCOPE_HTTP_PROFILER_KIND",
    "tool http: whose server it is: vllm, vllm-unnamed (too old to name its traces; its folder is its own) or sglang",
)
HTTP_PROFILER_DIR = Name(
    "STEPSCOPE_HTTP_PROFILER_DIR",
    "tool http: where the server leaves its traces, as the process sees it; may hold {role} and {rank}",
)
HTTP_PROFILER_ANY_HOST = Name("STEPSCOPE_HTTP_PROFILER_ANY_HOST", "tool http, 1: the server may be on another machine")
HTTP_PROFILER_TOKEN_FILE = Name(
    "STEPSCOPE_HTTP_PROFILER_TOKEN_FILE", "tool http: file with the API key that the server demands"
)

PEOPLE_NEED = (STEPS, TOOLS, LEVEL_ENV, RANKS, DIR, MAX_OVERHEAD, HTTP, DISABLED)
ADVANCED = (
    RUN_ENV,
    ATTEMPT_ENV,
    NODE,
    SOCKET,
    STEPS_FILE,
    CONTINUOUS,
    REPLICA_STOP,
    CAP_SECONDS,
    CAP_BYTES,
    CAP_MEMORY,
    BOUNDARY_SECONDS,
    DISK_BUDGET,
    KEEP_SECONDS,
    KEEP_BYTES,
    REQUEST_SPANS,
    OTLP_HTTP,
    OTLP_GRPC,
    ARTIFACTS,
    TOKEN_FILE,
    TRACE_VIEW,
    VIEWER,
    HTTP_PROFILER_URL,
    HTTP_PROFILER_KIND,
    HTTP_PROFILER_DIR,
    HTTP_PROFILER_ANY_HOST,
    HTTP_PROFILER_TOKEN_FILE,
)
ENVIRONMENT = PEOPLE_NEED + ADVANCED
