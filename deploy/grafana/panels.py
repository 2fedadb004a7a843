"""
How every panel of our dashboards looks and asks: one kind of time series, one of figures, laid out in a grid.

Owns colours, legends, the grid, variables and the way an expression is made to ask for the chosen run. Which panels
there are is ``dashboards``' business.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model

WIDTH = 24
"""Columns of Grafana's grid."""

HEIGHT = 8
"""Rows of a panel: three fit on a screen without scrolling."""

HERE = 'job=~"$job",instance=~"$instance"'
"""What an expression says of the run and the nodes that are chosen."""

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The data source that is chosen at the top."""

TRACES = "stepscope"
"""The tag by which our dashboards lead to each other."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """
    One expression and what its series are called. ``exemplars`` are asked for along with it.
    """

    expr: str
    legend: str
    exemplars: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """
    One panel: what it shows, in which unit, and why one would look.
    """

    title: str
    why: str
    queries: Sequence[Query]
    unit: str = "short"
    stacked: bool = False
    figure: bool = False
    """The last value alone, large."""
    negative: bool = False
    """Whether values below 0 are to be seen."""
    width: int = 8
    limits: Sequence[tuple[float, str]] = field(default_factory=tuple)
    """From which value on it has which colour; green below."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """
    One dashboard.
    """

    uid: str
    title: str
    why: str
    panels: Sequence[Panel]
    by_role: bool = True


def built(page: Page) -> model.Dashboard:
    """
    The dashboard as Grafana takes it.
    """
    made = dashboard.Dashboard(page.title).uid(page.uid).description(page.why).tags([TRACES]).timezone("browser")
    made.refresh("10s").time("now-30m", "now").tooltip(model.DashboardCursorSync.CROSSHAIR).readonly()
    made.link(dashboard.DashboardLink("stepscope").tags([TRACES]).as_dropdown(True).include_vars(True).keep_time(True))
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    made.with_variable(_variable("job", "Run", "label_values(stepscope_processes, job)"))
    made.with_variable(_variable("instance", "Node", 'label_values(stepscope_processes{job=~"$job"}, instance)'))
    if page.by_role:
        roles = f"label_values(stepscope_step_seconds_count{{{HERE}}}, role)"
        made.with_variable(_variable("role", "Role", roles))
    for number, (panel, place) in enumerate(_placed(page.panels), 1):
        made.with_panel((_figure if panel.figure else _series)(panel).grid_pos(place).id(number))
    return made.build()


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(query)
    made.current(model.VariableOption(selected=True, text=["All"], value=["$__all"])).include_all(True).multi(True)
    made.all_value(".*").sort(model.VariableSort.NATURAL_ASC)
    return made.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)


def _placed(panels: Iterable[Panel]) -> Iterable[tuple[Panel, model.GridPos]]:
    x = y = tallest = 0
    for panel in panels:
        height = HEIGHT // 2 if panel.figure else HEIGHT
        if x + panel.width > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        yield panel, model.GridPos(h=height, w=panel.width, x=x, y=y)
        x, tallest = x + panel.width, max(tallest, height)


def _targets(panel: Panel) -> list[prometheus.Dataquery]:
    found = []
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        made = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(letter).datasource(SOURCE)
        found.append((made.instant() if panel.figure else made.range()).exemplar(query.exemplars))
    return found


def _limits(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [model.Threshold(value=None, color="green")]
    steps += [model.Threshold(value=value, color=color) for value, color in panel.limits]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def _series(panel: Panel) -> timeseries.Panel:
    made = timeseries.Panel().title(panel.title).description(panel.why).unit(panel.unit).datasource(SOURCE)
    for target in _targets(panel):
        made.with_target(target)
    legend = common.VizLegendOptions().show_legend(True).display_mode(looks.LegendDisplayMode.LIST)
    made.legend(legend.placement(looks.LegendPlacement.BOTTOM).calcs([]))
    made.tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
    if panel.stacked:
        made.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL)).fill_opacity(40)
    if panel.limits:
        dashed = looks.GraphThresholdsStyleMode.DASHED
        made.thresholds(_limits(panel)).thresholds_style(common.GraphThresholdsStyleConfig().mode(dashed))
    return (made if panel.negative else made.min(0)).no_value("none")


def _figure(panel: Panel) -> stat.Panel:
    made = stat.Panel().title(panel.title).description(panel.why).unit(panel.unit).datasource(SOURCE)
    for target in _targets(panel):
        made.with_target(target)
    made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return made.thresholds(_limits(panel)).no_value("none")
