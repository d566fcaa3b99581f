"""Panels of the boards, as values: what each asks, and how it is drawn in Grafana.

A board is made by `board`; the classes of grafana-foundation-sdk know Grafana's field names.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${source}")
# Okabe and Ito's colours: told apart by colour-blind people, and in grey.
BLUE, GREEN, YELLOW, ORANGE, RED = "#0072B2", "#009E73", "#F0E442", "#E69F00", "#D55E00"
GREY, PURPLE = "#999999", "#CC79A7"


class Unit(Enum):
    """Unit of a panel, by Grafana's name of it."""

    COUNT = "short"
    RATIO = "percentunit"
    SECONDS = "s"
    BYTES = "bytes"
    CELSIUS = "celsius"
    WATTS = "watt"
    BYTES_PER_SECOND = "Bps"


@dataclass(frozen=True, slots=True)
class Query:
    """A query in PromQL and the legend of its series; "" shows their labels."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel: its title is a noun, its text says what to do when it looks bad."""

    title: str
    text: str
    queries: Sequence[Query]
    unit: Unit = Unit.COUNT
    # Of 24 columns, and of rows of 30 pixels.
    width: int = 12
    height: int = 8

    def built(self) -> Builder[models.Panel]:
        """Return it for Grafana."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Panel):
    """One number; from ``warn`` and ``bad`` on it is coloured, below them where ``low`` is bad."""

    width: int = 4
    height: int = 4
    warn: float | None = None
    bad: float | None = None
    low: bool = False
    decimals: int | None = None

    def built(self) -> Builder[models.Panel]:
        """See Panel."""
        made = (
            stat.Panel()
            .thresholds(_thresholds(self.warn, self.bad, self.low))
            .color_mode(looks.BigValueColorMode.BACKGROUND)
            .graph_mode(looks.BigValueGraphMode.NONE)
            .no_value("none")
        )
        if self.decimals is not None:
            made = made.decimals(self.decimals)
        return _filled(self, made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves(Panel):
    """Curves over time, or areas on top of one another where ``stacked``."""

    stacked: bool = False

    def built(self) -> Builder[models.Panel]:
        """See Panel."""
        made = timeseries.Panel().min(0).legend(_legend()).tooltip(_tooltip())
        if self.stacked:
            stacking = common.StackingConfig().mode(looks.StackingMode.NORMAL)
            made = made.stacking(stacking).fill_opacity(60)
        return _filled(self, made)


@dataclass(frozen=True, slots=True, kw_only=True)
class States(Panel):
    """A bar for each series over time: what it was when, by a letter's word and a colour."""

    # Value of the series → word and colour.
    words: Sequence[tuple[str, str, str]]

    def built(self) -> Builder[models.Panel]:
        """See Panel."""
        mapping = models.ValueMap(
            options={
                value: models.ValueMappingResult(text=word, color=color, index=place)
                for place, (value, word, color) in enumerate(self.words)
            }
        )
        made = statetimeline.Panel().mappings([mapping]).merge_values(True).row_height(0.8)
        return _filled(self, made.show_value(looks.VisibilityMode.AUTO))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Panel):
    """A bar for each series, the longest first."""

    def built(self) -> Builder[models.Panel]:
        """See Panel."""
        made = bargauge.Panel().orientation(looks.VizOrientation.HORIZONTAL).min(0)
        return _filled(self, made.display_mode(looks.BarGaugeDisplayMode.BASIC), instant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Panel):
    """A table: a row for each series of the queries, joined by their first label."""

    # Label → head of its column; other labels are not shown.
    labels: Sequence[tuple[str, str]]
    # Heads of the queries' values.
    values: Sequence[str]
    # Address of the board behind the first label, if any.
    link: str = ""

    def built(self) -> Builder[models.Panel]:
        """See Panel."""
        heads = dict(self.labels)
        many = len(self.queries) > 1
        named = {f"Value #{_ref(n)}" if many else "Value": h for n, h in enumerate(self.values)}
        shown = {name: place for place, name in enumerate([*heads, *named])}
        organize = models.DataTransformerConfig(
            id_val="organize",
            options={
                "indexByName": shown,
                "renameByName": {**heads, **named},
                "includeByName": dict.fromkeys(shown, True),
            },
        )
        merge = models.DataTransformerConfig(id_val="merge", options={})
        made = table.Panel().with_transformation(merge).with_transformation(organize)
        if self.link:
            link = {"title": self.labels[0][1], "url": self.link}
            links = models.DynamicConfigValue(id_val="links", value=[link])
            made = made.override_by_name(self.labels[0][1], [links])
        return _filled(self, made, instant=True, rows=True)


def _ref(number: int) -> str:
    return "ABCDEFGHIJ"[number]


_Drawn = TypeVar(
    "_Drawn", stat.Panel, timeseries.Panel, statetimeline.Panel, bargauge.Panel, table.Panel
)


def _filled(panel: Panel, drawn: _Drawn, *, instant: bool = False, rows: bool = False) -> _Drawn:
    """Give a drawing what all have: title, text, unit, place and queries."""
    drawn = (
        drawn.title(panel.title)
        .description(panel.text)
        .unit(panel.unit.value)
        .datasource(_SOURCE)
        .span(panel.width)
        .height(panel.height)
    )
    for number, query in enumerate(panel.queries):
        asked = prometheus.Dataquery().expr(query.expr).ref_id(_ref(number))
        if query.legend:
            asked = asked.legend_format(query.legend)
        if rows:
            asked = asked.format(PromQueryFormat.TABLE)
        drawn = drawn.with_target(asked.instant() if instant else asked.range())
    return drawn


def _thresholds(warn: float | None, bad: float | None, low: bool) -> dashboard.ThresholdsConfig:
    if warn is None and bad is None:
        ends: list[tuple[float | None, str]] = [(None, BLUE)]
    elif low:
        ends = [(None, RED), (bad, ORANGE), (warn, GREEN)]
    else:
        ends = [(None, GREEN), (warn, ORANGE), (bad, RED)]
    steps = [
        models.Threshold(value=end, color=color)
        for place, (end, color) in enumerate(ends)
        if end is not None or place == 0
    ]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(looks.LegendDisplayMode.LIST)
        .placement(looks.LegendPlacement.BOTTOM)
        .calcs([])
    )


def _tooltip() -> common.VizTooltipOptions:
    mode = looks.TooltipDisplayMode.MULTI
    return common.VizTooltipOptions().mode(mode).sort(looks.SortOrder.DESCENDING)
