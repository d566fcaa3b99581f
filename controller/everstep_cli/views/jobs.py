"""Views of jobs: their incidents and ledger, planned work, and warm standbys."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_cli.views.deaths import death_lists
from everstep_cli.views.findings import finding_table, grouped
from everstep_cli.views.slowness import slow_table
from everstep_cli.views.snapshots import cadence_line, storage_facts
from everstep_cli.views.stacks import hang_sheet
from everstep_proto.generated import admin_pb2

# Of a job on more nodes the line would be long.
_NODES_WITH_RANKS_MAX = 8


def job_list(jobs: Iterable[admin_pb2.JobSummary]) -> Iterator[RenderableType]:
    """Yield the table of all jobs, and a sentence for each that does not simply run."""
    rows = list(jobs)
    if not rows:
        yield "No job yet. Start one: everstep run --job NAME --nnodes 1 -- python train.py"
        return
    made = tables.table(
        "job", "id", "state", "generation", "step", "nodes", "spares", "ETTR",
        right=("generation", "step", "ETTR"), wrap=("nodes", "spares"),
    )  # fmt: skip
    for job in rows:
        made.add_row(
            job.job,
            job.id,
            formatting.state(job.outcome or job.state),
            str(job.generation),
            _step(job),
            formatting.names(job.members),
            formatting.names(job.spares),
            _ettr(job),
        )
    yield made
    well = ("running", "succeeded", "cancelled", "replaced")
    sentences = [j for j in rows if (j.outcome or j.state) not in well and j.reason]
    if sentences:
        yield ""
    for job in sentences:
        yield Text.assemble((job.job, "bold"), ": ", job.reason)


def job_sheet(
    job: admin_pb2.JobDetail, now_ns: int, *, every: bool = False
) -> Iterator[RenderableType]:
    """Yield everything known of one job; ``every`` finding, also those of one cause."""
    summary = job.summary
    yield tables.facts(
        [
            ("job", Text(summary.job, style="bold")),
            ("id", summary.id),
            *([("continues", job.continues)] if job.continues else []),
            ("state", formatting.state(summary.outcome or summary.state)),
            ("because", summary.reason),
            *([("begun", f"it {job.begun}")] if job.begun else []),
            ("generation", f"{summary.generation} ({formatting.count(job.restarts, 'restart')})"),
            ("step", f"{_step_in_words(summary)}, {_recoverable(job)}"),
            ("nodes", formatting.names(summary.members)),
            ("spares", formatting.names(summary.spares)),
            *(("kept out", sentence) for sentence in job.kept_out),
            *(("foretold", sentence) for sentence in job.swap_plans),
            *(() if summary.state == "ended" else standby_facts(job.standbys)),
            ("asked for", _wish(job)),
            *((("ranks", _ranks(summary, job.processes_per_node)),) if summary.members else ()),
            *(planned_facts(job.planned, now_ns) if job.HasField("planned") else ()),
            ("snapshots", cadence_line(job.cadence)),
            *(storage_facts(job.storage, now_ns) if job.HasField("storage") else ()),
            ("ETTR", f"{_ettr(summary)} ('everstep ettr {summary.job}' shows the rest)"),
            ("uid", str(summary.uid)),
        ]
    )
    if job.HasField("hang"):
        yield from hang_sheet(job.hang)
    if job.slow:
        yield from slow_table(job.slow, job.slow_plan)
    if job.findings:
        yield tables.section("findings about it")
        groups = grouped(job.findings, every=every)
        yield finding_table(groups, now_ns, each=f"everstep job {summary.job} --all")
    yield from incident_list(job.incidents)
    yield from death_lists(job.incidents)


def ledger_sheet(ledger: admin_pb2.Ledger) -> Iterator[RenderableType]:
    """Yield where the time went, the two ratios with their definitions, and every incident."""
    yield _categories(ledger)
    yield ""
    yield tables.facts(
        [
            ("ETTR_time", f"{ledger.ettr_time:.3%}{_at_most(ledger)}"),
            ("ETTR_work", f"{ledger.ettr_work:.3%}{_at_most(ledger)}"),
            *_devices(ledger),
            ("steps", f"{ledger.steps} that count{_undecided(ledger)}"),
            ("failures", _failures(ledger)),
            ("to hold 99.5 %", _budget(ledger)),
            *_mttf(ledger),
        ]
    )
    yield from _stages(ledger.stages)
    yield from _device_time(ledger)
    yield Text("\n".join(ledger.definitions), style="dim")
    yield from incident_list(ledger.incidents)


def published_sheet(ledger: admin_pb2.Ledger) -> Iterator[RenderableType]:
    """Yield what each publisher would call the ratio of a job, and how that is defined."""
    made = tables.table(
        "published by", "ratio", "of what", "where", right=("ratio",), wrap=("of what", "where")
    )
    for one in ledger.published:
        made.add_row(one.name, f"{one.value:.3%}", one.definition, one.source)
    yield made
    yield ""
    yield tables.facts(list(_predicted(ledger)))


def _predicted(ledger: admin_pb2.Ledger) -> Iterator[tuple[str, str]]:
    """Yield how often it fails, with the bounds of that, and the ratio that follows."""
    low, high = ledger.failures_per_1000_node_days_low, ledger.failures_per_1000_node_days_high
    rate = f"{ledger.failures_per_1000_node_days:,.2f} in 1,000 node-days"
    yield "failure rate", f"{rate}; 95 % sure: {low:,.2f} to {high:,.2f} (exact Poisson interval)"
    if ledger.expected_ettr:
        how = "from its failures, recoveries and snapshots so far (Daly 2006, exact form)"
        yield "expected ETTR", f"{ledger.expected_ettr:.3%}, {how}"


def _devices(ledger: admin_pb2.Ledger) -> Iterator[tuple[str, str]]:
    """Yield the ratio in device-seconds of a job that had fewer nodes than it may have."""
    if ledger.degraded_device_s:
        hours = f"{ledger.degraded_device_s / 3600:,.1f} device hours"
        yield "ETTR_devices", f"{ledger.ettr_devices:.3%}; it did without {hours}"


def _device_time(ledger: admin_pb2.Ledger) -> Iterator[RenderableType]:
    """Yield where device-seconds went of a job that had fewer nodes than it may have."""
    if not ledger.degraded_device_s:
        return
    yield tables.section("devices")
    made = tables.table("category", "device hours", "share", right=("device hours", "share"))
    whole_ns = sum(one.time_ns for one in ledger.devices)
    for one in ledger.devices:
        made.add_row(one.name, f"{one.time_ns / 3.6e12:,.2f}", f"{one.time_ns / whole_ns:.2%}")
    yield made


def _mttf(ledger: admin_pb2.Ledger) -> Iterator[tuple[str, str]]:
    if ledger.mttf_s:
        yield "between failures", f"{formatting.seconds(round(ledger.mttf_s * 1e9))} on average"


def _stages(stages: Sequence[admin_pb2.StageTime]) -> Iterator[RenderableType]:
    """Yield how long the stages of recoveries took, of failures that are over."""
    if not stages:
        return
    yield tables.section("recoveries by stage")
    made = tables.table(
        "stage", "recoveries", "median", "p99", right=("recoveries", "median", "p99")
    )
    for one in stages:
        times = (formatting.seconds(round(told * 1e9)) for told in (one.p50_s, one.p99_s))
        made.add_row(one.stage, str(one.recoveries), *times)
    yield made


def incident_list(incidents: Sequence[admin_pb2.Incident]) -> Iterator[RenderableType]:
    """Yield the incidents of a job with what each cost."""
    if not incidents:
        return
    yield tables.section("incidents")
    made = tables.table(
        "incident", "cause", "node", "plan", "seconds", "what happened and what it cost",
        right=("seconds",), wrap=("what happened and what it cost",),
    )  # fmt: skip
    for incident in incidents:
        total = sum(cost.time_ns for cost in incident.costs)
        made.add_row(
            incident.incident,
            incident.cause,
            incident.node or "-",  # of a restart that was ordered, no node is the cause
            incident.plan.replace("_", " ") or ("open" if not incident.over_ns else "-"),
            formatting.seconds(total),
            _incident_story(incident),
        )
    yield made


def fleet_incident_list(incidents: Sequence[admin_pb2.Incident]) -> Iterator[RenderableType]:
    """Yield the incidents of the fleet, or say that there is none."""
    yield from incident_list(incidents) if incidents else ("No incidents.",)


# What an incident costs, in short; 'everstep ettr' has a sentence for each.
COST_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "inc.detect": "noticing",
        "inc.diagnose": "deciding",
        "inc.drain": "ending processes",
        "inc.save": "storing the last step",
        "inc.capacity": "waiting for a node",
        "inc.backoff": "waiting for the next attempt",
        "inc.schedule": "binding nodes",
        "inc.env": "starting processes",
        "inc.init": "imports",
        "inc.restore": "restoring",
        "inc.warmup": "first step",
        "lost.inflight": "step cut off",
        "lost.recompute": "steps made again",
        "lost.corrupt": "steps taken back",
        "planned": "planned work",
    }
)


def costs_line(costs: Iterable[admin_pb2.Category]) -> str:
    """Return costs in a line: "noticing 0.012, ending processes 0.100"; --json has the codes."""
    shown = ((COST_WORDS.get(cost.name, cost.name), cost.time_ns) for cost in costs)
    return ", ".join(f"{name} {formatting.seconds(time_ns)}" for name, time_ns in shown)


def _categories(ledger: admin_pb2.Ledger) -> Table:
    made = tables.table(
        "category", "seconds", "share", "meaning", right=("seconds", "share"), wrap=("meaning",)
    )
    for category in ledger.categories:
        share = category.time_ns / ledger.wall_ns if ledger.wall_ns else 0.0
        made.add_row(
            category.name, formatting.seconds(category.time_ns), f"{share:.2%}", category.meaning
        )
    made.add_section()
    total = sum(category.time_ns for category in ledger.categories)
    share = total / ledger.wall_ns if ledger.wall_ns else 0.0
    wall = formatting.seconds(ledger.wall_ns)
    exact = (
        "= wall clock, to the nanosecond"
        if total == ledger.wall_ns
        else f"differs from the wall clock, {wall}: please report this"
    )
    made.add_row("sum", formatting.seconds(total), f"{share:.2%}", exact, style="bold")
    return made


def _incident_story(incident: admin_pb2.Incident) -> Text:
    story = Text(_with_verdict(incident.message, incident.verdict))
    if incident.has_restored:
        story.append(f"\nstep {incident.step_before} → restored {incident.step_restored}")
    elif incident.HasField("step_resumed"):
        story.append(f"\nstep {incident.step_before} → went on with {incident.step_resumed}")
    if costs := costs_line(incident.costs):
        story.append(f"\n{costs}", "dim")
    return story


def _with_verdict(message: str, verdict: str) -> str:
    """Return both; once what both say: a message may end as the verdict begins."""
    if not message or not verdict:
        return message or verdict
    starts = (0, *(found.end() for found in re.finditer(": ", message)))
    said = (at for at in starts if message[at:] and verdict.startswith(message[at:]))
    at = next(said, None)
    return f"{message}\n{verdict}" if at is None else message[:at] + verdict


def _step(job: admin_pb2.JobSummary) -> str:
    if job.HasField("undecided_step"):
        return f"{job.undecided_step}?"
    return str(job.step) if job.has_step else "-"


def _step_in_words(job: admin_pb2.JobSummary) -> str:
    if not job.HasField("undecided_step"):
        return _step(job)
    return f"{job.undecided_step} before the restart; which is next, its first step will show"


def _ettr(job: admin_pb2.JobSummary) -> str:
    return f"{'≤ ' if job.HasField('undecided_step') else ''}{job.ettr_time:.2%}"


def _at_most(ledger: admin_pb2.Ledger) -> str:
    return " at most" if ledger.HasField("undecided_step") else ""


def _undecided(ledger: admin_pb2.Ledger) -> str:
    if not ledger.HasField("undecided_step"):
        return ""
    return (
        f", up to step {ledger.undecided_step}; which of them are made again is not known before "
        "the first step after the restart"
    )


def _recoverable(job: admin_pb2.JobDetail) -> str:
    if not job.has_recoverable:
        return "no snapshot yet"
    step = str(job.recoverable_step)
    without = " without any one node" if len(job.summary.members) > 1 else " while this node lives"
    return f"recoverable{without}: {step}"


def _ranks(job: admin_pb2.JobSummary, each: int) -> str:
    """Return which ranks are on which of a few nodes, and how the rest is asked for.

    Their processes are not asked for here: that takes seconds where a node does not answer, and
    stops each rank for a moment.
    """
    if job.state == "ended":
        return ""
    asked = f"'everstep job {job.job} ranks' shows the"
    if len(job.members) > _NODES_WITH_RANKS_MAX:
        return f"{asked} node, process and devices of each"
    places = [f"{_numbers(place * each, each)} on {node}" for place, node in enumerate(job.members)]
    return f"{', '.join(places)}; {asked} process and devices of each"


def _numbers(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _wish(job: admin_pb2.JobDetail) -> str:
    least = "" if job.nodes_min == job.nodes_max else f"{job.nodes_min} to "
    each = " each" if job.nodes_max > 1 else ""
    nodes = formatting.count(job.nodes_max, "node")
    ranks = formatting.count(job.processes_per_node, "rank")
    return f"{least}{nodes} with {ranks}{each}"


def _failures(ledger: admin_pb2.Ledger) -> str:
    planned = len(ledger.incidents) - ledger.failures
    beside = f", beside {formatting.count(planned, 'incident')} of planned work" if planned else ""
    return f"{ledger.failures}{beside}"


def _budget(ledger: admin_pb2.Ledger) -> str:
    if not ledger.failures:
        return "no failure yet, so no failure rate to tell from"
    if not ledger.budget_per_failure_s:
        return "no failure may cost anything: ckpt.stall.* has taken 0.5 % of the time already"
    each = f"a failure may cost {ledger.budget_per_failure_s:.1f} s at the failure rate so far"
    return f"{each}; {ledger.budget_burnt:.0%} of what failures may cost is used up"


_KINDS = {
    "restart": "a restart",
    "stop": "the end of the job",
    "drain": "a move to other nodes",
    "growth": "a restart on more nodes",
    "move": "a move to a spare",
}


def planned_facts(line: admin_pb2.PlannedLine, now_ns: int) -> Iterator[tuple[str, str]]:
    """Yield what is planned and why, what it waits for, and how to take it back."""
    after = f" after step {line.after_step}" if line.HasField("after_step") else ""
    since = formatting.duration(now_ns - line.ordered_ns)
    what = _KINDS.get(line.kind, line.kind)
    yield "planned", f"{what}{after}, ordered by {line.by} {since} ago: {line.reason}"
    yield "waits", line.waits
    yield "to undo", line.undo


def standby_facts(lines: Iterable[admin_pb2.StandbyLine]) -> list[tuple[str, str]]:
    """Return a fact for each kind of node; none where nothing is known to wait."""
    groups: dict[tuple[int, int, str], list[admin_pb2.StandbyLine]] = {}
    for line in lines:
        if not (line.ready or line.making or line.ended):
            continue
        groups.setdefault((line.ready, line.making, line.ended), []).append(line)
    sentences = [_sentence(group) for _, group in sorted(groups.items())]
    return [("standbys" if not index else "", one) for index, one in enumerate(sentences)]


def _sentence(group: list[admin_pb2.StandbyLine]) -> str:
    first, where = group[0], formatting.names([line.node for line in group])
    if first.ended:
        return f"none on {where}: {first.ended}"
    making = f", {first.making} being made" if first.making else ""
    most = max(line.memory_bytes for line in group)
    each = "" if len(group) == 1 else " a node at most"
    return f"{first.ready} ready{making} on {where}, {formatting.size(most)}{each}"
