"""Report at the end of the demo: one value, as JSON for programs and as tables for people."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.demo.losses import LossComparison
from everstep_cli.demo.proofs import DemoClaim
from everstep_cli.views import formatting, json_output, tables
from everstep_cli.views.jobs import costs_line
from everstep_common.version import VERSION
from everstep_proto.generated import admin_pb2

_ACTS = {1: "a process is killed", 2: "a node is killed", 3: "a GPU fails", 4: "the end"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """Everything the demo found. ``trouble`` is a sentence when it could not play to its end."""

    duration_s: float
    steps: int
    claims: tuple[DemoClaim, ...]
    ledger: admin_pb2.Ledger | None
    losses: LossComparison | None
    trouble: str = ""

    @property
    def passed(self) -> bool:
        """Whether all of it happened."""
        return not self.trouble and bool(self.claims) and all(claim.held for claim in self.claims)

    def failures(self) -> list[str]:
        """Return one sentence for each thing that did not happen."""
        broken = [f"{c.claim}: not seen ({c.evidence})" for c in self.claims if not c.held]
        return [*broken, *([self.trouble] if self.trouble else [])]

    def to_dict(self) -> dict[str, object]:
        """Return the report for --json; keys stay as they are from version to version."""
        ledger = json_output.to_dict(self.ledger) if self.ledger is not None else None
        losses = asdict(self.losses) | {"identical": self.losses.identical} if self.losses else None
        return {
            "everstep": VERSION,
            "passed": self.passed,
            "failures": self.failures(),
            "duration_s": round(self.duration_s, 3),
            "steps": self.steps,
            "claims": [asdict(claim) for claim in self.claims],
            "incidents": [_record(i) for i in self.ledger.incidents] if self.ledger else [],
            "losses": losses,
            "ledger": ledger,
        }


def _record(incident: admin_pb2.Incident) -> dict[str, object]:
    return {
        "incident": incident.incident,
        "cause": incident.cause,
        "node": incident.node,
        "plan": incident.plan,
        "message": incident.message,
        "step_before": incident.step_before,
        "step_restored": incident.step_restored if incident.has_restored else None,
        "steps_lost": (
            incident.step_before - incident.step_restored if incident.has_restored else None
        ),
        "cost_s": {cost.name: cost.time_ns / 1e9 for cost in incident.costs},
        "total_s": sum(cost.time_ns for cost in incident.costs) / 1e9,
    }


def sheets(report: DemoReport) -> Iterator[RenderableType]:
    """Yield the end tables: incidents with their costs, the ratio, every claim."""
    if report.ledger is not None:
        yield tables.section("What each incident cost")
        yield _incidents(report.ledger)
        yield tables.section("Where the time went")
        yield _time(report.ledger)
    yield tables.section("What was claimed, and what was seen")
    yield _claims(report)
    yield ""
    yield _verdict(report)


def _incidents(ledger: admin_pb2.Ledger) -> RenderableType:
    made = tables.table(
        "incident", "cause", "node", "plan", "step", "seconds", "of which",
        right=("seconds",), wrap=("of which",),
    )  # fmt: skip
    for incident in ledger.incidents:
        restored = f"{incident.step_before}→{incident.step_restored + 1}"
        made.add_row(
            incident.incident,
            incident.cause,
            incident.node,
            incident.plan.replace("_", " "),
            restored if incident.has_restored else "-",
            formatting.seconds(sum(cost.time_ns for cost in incident.costs)),
            costs_line(incident.costs),
        )
    return made


def _time(ledger: admin_pb2.Ledger) -> RenderableType:
    made = tables.table("category", "seconds", "share", right=("seconds", "share"))
    for category in ledger.categories:
        share = category.time_ns / ledger.wall_ns if ledger.wall_ns else 0.0
        made.add_row(category.name, formatting.seconds(category.time_ns), f"{share:.2%}")
    made.add_section()
    made.add_row("wall clock", formatting.seconds(ledger.wall_ns), "100.00%", style="bold")
    made.add_row("ETTR_time", "", f"{ledger.ettr_time:.2%}", style="bold")
    made.add_row("ETTR_work", "", f"{ledger.ettr_work:.2%}", style="bold")
    return made


def _claims(report: DemoReport) -> RenderableType:
    made = tables.table("", "claim", "seen", wrap=("claim", "seen"))
    act = 0
    for claim in report.claims:
        if claim.act != act:
            act = claim.act
            made.add_row("", Text(_ACTS[act], style="bold"), "")
        mark = Text("yes", "green") if claim.held else Text("NO", "bold red")
        made.add_row(mark, claim.claim, Text(claim.evidence, style="dim"))
    return made


def _verdict(report: DemoReport) -> Text:
    took = f"{report.duration_s:.0f} s"
    if report.passed:
        return Text(f"All of it happened, in {took}.", style="bold green")
    return Text("\n".join(["Not all of it happened:", *report.failures()]), style="bold red")
