"""A board of Grafana: rows of panels, and the variables that its queries name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as models

from boards.panels import Panel

# Boards that each of them links to.
LINKED = {"everstep-fleet": "Fleet", "everstep-cost": "Cost of failures"}
# Where a table's first column leads.
NODE_LINK = "/d/everstep-node?var-node=${__value.raw}"
JOB_LINK = "/d/everstep-job?var-job=${__value.raw}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels below a headline."""

    headline: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A board: what it shows, as data."""

    uid: str
    title: str
    text: str
    rows: Sequence[Row]
    # A variable and the series whose label of that name it takes its values from.
    variables: Sequence[tuple[str, str]] = ()
    # Name, label and value of numbers that people set.
    constants: Sequence[tuple[str, str, str]] = ()
    since: str = "now-6h"

    def panels(self) -> Iterator[Panel]:
        """Yield all panels."""
        for row in self.rows:
            yield from row.panels

    def built(self) -> models.Dashboard:
        """Return it for Grafana."""
        source = dashboard.DatasourceVariable("source").label("Source").type("prometheus")
        made = (
            dashboard.Dashboard(self.title)
            .uid(self.uid)
            .description(self.text)
            .tags(["everstep"])
            .time(self.since, "now")
            .refresh("30s")
            .readonly()
            .with_variable(source)
        )
        for name, series in self.variables:
            made = made.with_variable(_from_labels(name, series))
        for name, label, value in self.constants:
            made = made.with_variable(
                dashboard.TextBoxVariable(name).label(label).default_value(value)
            )
        for uid, title in LINKED.items():
            if uid != self.uid:
                made = made.link(_link(uid, title))
        for row in self.rows:
            made = made.with_row(dashboard.Row(row.headline))
            for panel in row.panels:
                made = made.with_panel(panel.built())
        return made.build()


def _link(uid: str, title: str) -> dashboard.DashboardLink:
    link = dashboard.DashboardLink(title).url(f"/d/{uid}").type(models.DashboardLinkType.LINK)
    return link.keep_time(True)


def _from_labels(name: str, series: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .query(f"label_values({series}, {name})")
        .datasource(models.DataSourceRef(type_val="prometheus", uid="${source}"))
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
