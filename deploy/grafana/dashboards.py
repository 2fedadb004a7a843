"""
Grafana's dashboards, written as code: ``python -m deploy.grafana.dashboards`` makes ``dashboards/*.json``.

Owns which panels there are and what they ask Prometheus; ``--check`` says whether the files are what this makes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.panels import HERE, Page, Panel, Query, built

FOLDER = Path(__file__).with_name("dashboards")

ROLE = f'{{{HERE},role=~"$role"}}'
NODE = f"{{{HERE}}}"
RATE = "[$__rate_interval]"


def rates(metric: str, by: str) -> str:
    """
    What of ``metric`` came a second, by the labels ``by``.
    """
    where = ROLE if "role" in by else NODE
    total = f"rate({metric}{where}{RATE})"
    return f"sum by ({by}) ({total})" if by else f"sum({total})"


def quantile(share: float, metric: str, by: str = "") -> str:
    """
    The quantile ``share`` of a histogram.
    """
    where = ROLE if by else NODE
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{where}{RATE})))"


OVERVIEW = Page(
    uid="stepscope-run",
    title="stepscope / Run",
    why="How a run goes: its versions, how long its steps take, what the time goes into, how stale its samples are.",
    panels=(
        Panel(
            title="Version",
            why="param_version: completed updates of the weights, by role. The step in progress is one more.",
            queries=[Query(expr=f"max by (role) (stepscope_param_version{ROLE})", legend="{{role}}")],
            figure=True,
        ),
        Panel(
            title="Processes",
            why="Registered processes that are alive.",
            queries=[Query(expr=f"sum by (role) (stepscope_processes{ROLE})", legend="{{role}}")],
            figure=True,
        ),
        Panel(
            title="Since the last version",
            why="How long ago each role reached its version: what grows without end is stuck.",
            queries=[
                Query(
                    expr=f"time() - max by (role) (stepscope_param_version_timestamp_seconds{ROLE})", legend="{{role}}"
                )
            ],
            unit="s",
            figure=True,
        ),
        Panel(
            title="Versions over time",
            why="The rollouters follow the trainer; a gap that stays is staleness to come.",
            queries=[Query(expr=f"max by (role) (stepscope_param_version{ROLE})", legend="{{role}}")],
        ),
        Panel(
            title="Seconds of a step",
            why="From entering a step to its boundary, median and 95%. A dot is a step: it leads to the trace.",
            queries=[
                Query(expr=quantile(0.5, "stepscope_step_seconds", "role"), legend="{{role}} 50%", exemplars=True),
                Query(expr=quantile(0.95, "stepscope_step_seconds", "role"), legend="{{role}} 95%"),
            ],
            unit="s",
        ),
        Panel(
            title="Steps a minute",
            why="Of each role, counted in its processes.",
            queries=[Query(expr=f"60 * {rates('stepscope_step_seconds_count', 'role')}", legend="{{role}}")],
        ),
        Panel(
            title="Seconds by kind of time",
            why="Seconds of leaf spans in a second, over all processes: productive, overhead, idle or wasted.",
            queries=[
                Query(
                    expr=rates("stepscope_bucket_seconds_total", "role, bucket"),
                    legend="{{role}} {{bucket}}",
                    exemplars=True,
                )
            ],
            unit="s",
            stacked=True,
        ),
        Panel(
            title="Staleness of samples",
            why="Version in force when a sample was trained on, less the oldest that it was generated with.",
            queries=[
                Query(
                    expr=quantile(0.5, "stepscope_sample_staleness_versions"), legend="versions, 50%", exemplars=True
                ),
                Query(expr=quantile(0.95, "stepscope_sample_staleness_versions"), legend="versions, 95%"),
                Query(expr=rates("stepscope_samples_unknown_version_total", ""), legend="of unknown version, a second"),
            ],
        ),
        Panel(
            title="Reward",
            why="Mean reward of the last step whose spans tell one (rl.reward), without validation.",
            queries=[Query(expr=f"avg by (role) (stepscope_reward{ROLE})", legend="{{role}}")],
            negative=True,
        ),
    ),
)

RATIO = Query(expr=f"max by (role) (stepscope_profiling_overhead_ratio{ROLE})", legend="{{role}}")

AT_LEAST = Query(
    expr=f"max by (role) (stepscope_profiling_overhead_lower_bound_ratio{ROLE})", legend="{{role}}, at least"
)

COST = Page(
    uid="stepscope-cost",
    title="stepscope / What profiling costs",
    why="What recording has cost the run, and what came of it. Without a figure the ratio is unknown, not zero.",
    panels=(
        Panel(
            title="Overhead ratio",
            why="(stall + slowdown) / unprofiled productive time in recorded steps; if unknown, what it is at least.",
            queries=[RATIO, AT_LEAST],
            unit="percentunit",
            figure=True,
            limits=[(0.05, "orange"), (0.2, "red")],
        ),
        Panel(
            title="The same on wall time",
            why="In an asynchronous run part of the cost falls into time that would have been waiting.",
            queries=[Query(expr=f"max by (role) (stepscope_profiling_wall_overhead_ratio{ROLE})", legend="{{role}}")],
            unit="percentunit",
            figure=True,
            limits=[(0.05, "orange"), (0.2, "red")],
        ),
        Panel(
            title="Recording now",
            why="Windows that are open, by role.",
            queries=[Query(expr=f"sum by (role) (stepscope_windows_open{ROLE})", legend="{{role}}")],
            figure=True,
        ),
        Panel(
            title="Overhead ratio over time",
            why="On productive time.",
            queries=[RATIO, AT_LEAST],
            unit="percentunit",
        ),
        Panel(
            title="Stall by phase",
            why="Seconds in a second that opening, starting, stopping and exporting kept processes from their work.",
            queries=[
                Query(
                    expr=rates("stepscope_profiling_stall_seconds_total", "role, phase"),
                    legend="{{role}} {{phase}}",
                    exemplars=True,
                )
            ],
            unit="s",
            stacked=True,
        ),
        Panel(
            title="Updates kept waiting",
            why="Seconds in a second that stopping and starting profilers kept updates of replicas waiting.",
            queries=[Query(expr=rates("stepscope_update_delay_seconds_total", "role"), legend="{{role}}")],
            unit="s",
        ),
        Panel(
            title="Windows by outcome",
            why="All that were asked for: ready, or denied, failed, aborted, expired. `stepscope windows` says why.",
            queries=[
                Query(
                    expr=f"sum by (role, tool, outcome) (stepscope_windows_total{ROLE})",
                    legend="{{role}} {{tool}} {{outcome}}",
                    exemplars=True,
                )
            ],
            stacked=True,
        ),
        Panel(
            title="From the step to armed",
            why="Seconds from entering a selected step until its profiler ran.",
            queries=[
                Query(
                    expr=quantile(0.5, "stepscope_window_open_lag_seconds", "role"),
                    legend="{{role}} 50%",
                    exemplars=True,
                ),
                Query(expr=quantile(0.99, "stepscope_window_open_lag_seconds", "role"), legend="{{role}} 99%"),
            ],
            unit="s",
        ),
        Panel(
            title="Age of the oldest open window",
            why="One that grows past the longest step was forgotten open.",
            queries=[Query(expr=f"max by (role) (stepscope_window_open_age_seconds{ROLE})", legend="{{role}}")],
            unit="s",
        ),
        Panel(
            title="Incomplete recordings",
            why="Recordings that lack part of their step, asked for or lost.",
            queries=[
                Query(
                    expr=f"sum by (role, tool, cause) (stepscope_incomplete_recordings_total{ROLE})",
                    legend="{{role}} {{tool}} {{cause}}",
                )
            ],
        ),
        Panel(
            title="Missing ranks",
            why="Expected recordings that were not made in the last decided selected step.",
            queries=[Query(expr=f"sum by (role) (stepscope_missing_ranks{ROLE})", legend="{{role}}")],
        ),
        Panel(
            title="Start skew between ranks",
            why="Seconds from first to last start among ranks of a node: needs a step that several ranks recorded.",
            queries=[Query(expr=f"max by (role) (stepscope_window_start_skew_seconds{ROLE})", legend="{{role}}")],
            unit="s",
        ),
        Panel(
            title="Bytes recorded",
            why="Of final recordings, by role and tool.",
            queries=[
                Query(
                    expr=f"sum by (role, tool) (stepscope_artifact_bytes_total{ROLE})",
                    legend="{{role}} {{tool}}",
                    exemplars=True,
                )
            ],
            unit="bytes",
            stacked=True,
        ),
        Panel(
            title="Room for recordings",
            why="Bytes kept on each node, the budget, and what may still come.",
            queries=[
                Query(expr=f"stepscope_artifact_disk_bytes{NODE}", legend="{{instance}} kept"),
                Query(expr=f"stepscope_artifact_disk_budget_bytes{NODE}", legend="{{instance}} budget"),
                Query(expr=f"stepscope_artifact_disk_left_bytes{NODE}", legend="{{instance}} left"),
            ],
            unit="bytes",
        ),
        Panel(
            title="Checking and compressing",
            why="CPU seconds in a second, outside the profiled processes.",
            queries=[Query(expr=rates("stepscope_finalise_cpu_seconds_total", "instance"), legend="{{instance}}")],
            unit="s",
        ),
    ),
)

HEALTH = Page(
    uid="stepscope-sidecar",
    title="stepscope / Sidecars",
    why="Whether the sidecars themselves are well: what comes in and goes out, what waits, and what they use.",
    by_role=False,
    panels=(
        Panel(
            title="Sidecars",
            why="That Prometheus scrapes. One that is down is missing here, and alerted.",
            queries=[Query(expr=f"count by (job) (stepscope_sidecar_start_timestamp_seconds{NODE})", legend="{{job}}")],
            figure=True,
        ),
        Panel(
            title="Errors logged",
            why="Since each sidecar began; sidecar.log has them.",
            queries=[Query(expr=f"sum by (instance) (stepscope_sidecar_errors_total{NODE})", legend="{{instance}}")],
            figure=True,
            limits=[(1, "orange")],
        ),
        Panel(
            title="Since the last error",
            why="Nothing where none was logged.",
            queries=[
                Query(
                    expr=f"time() - stepscope_sidecar_last_error_timestamp_seconds{NODE}",
                    legend="{{instance}}",
                )
            ],
            unit="s",
            figure=True,
        ),
        Panel(
            title="Spans in and out",
            why="A second. What was received and not forwarded waits in the store.",
            queries=[
                Query(expr=rates("stepscope_spans_received_total", "instance"), legend="{{instance}} received"),
                Query(expr=rates("stepscope_spans_forwarded_total", "instance"), legend="{{instance}} forwarded"),
            ],
        ),
        Panel(
            title="Spans lost",
            why="A second, by reason. Nothing where none were.",
            queries=[Query(expr=rates("stepscope_spans_dropped_total", "instance, reason"), legend="{{reason}}")],
        ),
        Panel(
            title="Spans waiting for the upstream",
            why="Received and not yet forwarded. All of them where there is no upstream.",
            queries=[Query(expr=f"stepscope_spans_pending{NODE}", legend="{{instance}}")],
        ),
        Panel(
            title="Lag of the forwarder",
            why="Seconds since the oldest span that is not forwarded was received.",
            queries=[Query(expr=f"stepscope_forward_lag_seconds{NODE}", legend="{{instance}}")],
            unit="s",
        ),
        Panel(
            title="Queues",
            why="Writes that wait for the store, spans not read into rows, closed windows not final.",
            queries=[
                Query(expr=f"sum by (instance, queue) (stepscope_queue_length{NODE})", legend="{{instance}} {{queue}}")
            ],
        ),
        Panel(
            title="Store",
            why="Bytes of the store's files.",
            queries=[Query(expr=f"stepscope_store_bytes{NODE}", legend="{{instance}}")],
            unit="bytes",
        ),
        Panel(
            title="Memory",
            why="Resident memory of each sidecar.",
            queries=[Query(expr=f"stepscope_sidecar_resident_memory_bytes{NODE}", legend="{{instance}}")],
            unit="bytes",
        ),
        Panel(
            title="CPU",
            why="Of each sidecar, in cores, without the children that check recordings.",
            queries=[Query(expr=rates("stepscope_sidecar_cpu_seconds_total", "instance"), legend="{{instance}}")],
        ),
        Panel(
            title="Age",
            why="How long each sidecar has been running: what falls to zero was restarted.",
            queries=[Query(expr=f"time() - stepscope_sidecar_start_timestamp_seconds{NODE}", legend="{{instance}}")],
            unit="s",
        ),
    ),
)

PAGES = {"run.json": OVERVIEW, "cost.json": COST, "sidecars.json": HEALTH}


def files() -> dict[str, str]:
    """
    The text of each dashboard, by the name of its file.
    """
    return {name: JSONEncoder(sort_keys=True, indent=2).encode(built(page)) + "\n" for name, page in PAGES.items()}


def main(arguments: Sequence[str]) -> int:
    """
    Write the files, or say which are stale.
    """
    if "--check" not in arguments:
        FOLDER.mkdir(exist_ok=True)
        for name, text in files().items():
            (FOLDER / name).write_text(text, encoding="utf-8")
        return 0
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    made = files()
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    for name in stale:
        sys.stderr.write(f"deploy/grafana/dashboards/{name} is stale: run python -m deploy.grafana.dashboards\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
