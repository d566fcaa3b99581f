"""Page of a report: an account as HTML that needs nothing else and prints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from everstep_cli.report import amounts, bars, svg, timeline, waterfall
from everstep_cli.report.account import FALLING, Account, IncidentAccount
from everstep_controller.core.accounting.categories import Group

# Rows of a table; a report of 466 incidents has all of them.
ROWS_MAX = 1000


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A picture, what it shows in a sentence, and how its areas are told apart."""

    picture: Markup
    legend: Markup = Markup()  # noqa: RUF009 - it does not change


def page(account: Account, made_ns: int, version: str) -> str:
    """Return the page of an account, made at a time by a version."""
    strip = _Drawing(Markup(timeline.ratio_strip(account)), _losses()) if account.periods else None
    found = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    found.filters |= {
        "span": amounts.span,
        "moment": amounts.moment,
        "printable": lambda text: text.translate(svg.CONTROLS),
    }
    here = resources.files("everstep_cli.report")
    source = here.joinpath("report.html.j2")
    pictures_css = here.joinpath("styles", "pictures.css").read_text(encoding="utf-8")
    template = found.from_string(source.read_text(encoding="utf-8"))
    return template.render(
        account=account,
        pictures_css=Markup(pictures_css),
        headline=headline(account),
        boss=list(numbers(account)),
        waterfall=_Drawing(Markup(waterfall.waterfall(account))),
        timeline=_Drawing(Markup(timeline.timeline(account)), _groups(account)),
        strip=strip,
        stages=_Drawing(Markup(bars.incident_bars(account.failures)), _stages(account.failures)),
        causes=_costs("What failures cost by cause", account.cost_by_cause()),
        nodes=_costs("What failures cost by node", account.cost_by_node()),
        bars_max=bars.BARS_MAX,
        incidents=sorted(account.incidents, key=lambda one: -one.seconds)[:ROWS_MAX],
        share=lambda seconds: amounts.share(seconds, account.seconds),
        made=amounts.moment(made_ns),
        version=version,
    )


def headline(account: Account) -> str:
    """Return the whole report in a sentence or two, for somebody who reads no more."""
    failures = account.failures
    cost = sum(one.seconds for one in failures)
    told = (
        f"Of {amounts.span(account.seconds)} of {account.unit},"
        f" {amounts.share(account.ettr_time, 1)} were training."
    )
    if not failures:
        return f"{told} Nothing has failed."
    often = "One failure" if len(failures) == 1 else f"{len(failures)} failures"
    worst = account.cost_by_cause()[0]
    return (
        f"{told} {often} cost {amounts.span(cost)}, {amounts.share(cost, account.seconds)} of it;"
        f" the most by {worst[0]}: {amounts.span(worst[2])}."
    )


def numbers(account: Account) -> Iterator[tuple[str, str]]:
    """Yield the numbers at the head of the page, each with what it is."""
    yield amounts.share(account.ettr_time, 1), "training time"
    yield str(len(account.failures)), "failures"
    if account.failures:
        cost = sum(one.seconds for one in account.failures) / len(account.failures)
        yield amounts.span(cost), "cost of a failure, on average"
    yield from ((value, name) for name, value in account.facts)


def _costs(title: str, costs: Sequence[tuple[str, int, float]]) -> _Drawing | None:
    return _Drawing(Markup(bars.cost_bars(title, costs))) if costs else None


def _groups(account: Account) -> Markup:
    names = {Group.INCIDENT: "failure", Group.PLANNED: "planned work"}
    if account.of_one_job:
        names = {Group.INITIAL: "first start", Group.PRODUCTIVE: "training", **names}
    return Markup(svg.legend([(name, svg.FILLS[one]) for one, name in names.items()], 960))


def _losses() -> Markup:
    shown = (Group.PRODUCTIVE, Group.SLOW, *FALLING[:-1])
    return Markup(svg.legend([(one.value, svg.FILLS[one]) for one in shown], 960))


def _stages(incidents: Sequence[IncidentAccount]) -> Markup:
    used = dict.fromkeys(stage.name for one in incidents for stage in one.stages)
    return Markup(svg.legend([(name, bars.stage_fill(name)) for name in used], 960))
