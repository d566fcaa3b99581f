"""Contents of the page's addresses: what is asked for each, and what its template is given."""

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping

from markupsafe import Markup

from everstep_cli.client.admin import AdminError, NameNotFoundError
from everstep_cli.page import grafana
from everstep_cli.page.curves import curves_of_samples, curves_of_steps
from everstep_cli.page.source import Source
from everstep_cli.page.stages import meaning_of, stage_waterfall, stages_of
from everstep_cli.page.tiles import letter_of, shape_of
from everstep_cli.report import svg, timeline, waterfall
from everstep_cli.report.from_admin import account_of_job, held_back
from everstep_controller.core.accounting.categories import Group
from everstep_proto.generated import admin_pb2

Values = Mapping[str, object]
_EVENTS = 50
# Of a time that is past, more was decided since.
_EVENTS_SINCE = 2000
_INCIDENTS = 100
# So many nodes are named with what is wrong, the worst first; all of them have tiles.
_NAMED = 50
# What followed from an incident is decided within this time after it.
_AFTER_NS = 60_000_000_000


async def fleet(source: Source, grafana_address: str) -> Values:
    """Return all nodes, by failure domain, those that want a look, and all jobs."""
    now, jobs = await asyncio.gather(source.fleet(), source.jobs())
    counts = now.roster.counts(now.troubled)
    looks = [(state, letter_of(state), shape_of(state), of) for state, of in counts.items()]
    return {
        "fleet": now,
        "nodes": len(now.roster.well),
        "sections": [(one, Markup(one.tiles)) for one in now.roster.sections(now.troubled)],
        "looks": looks,
        "named": list(now.troubled.values())[:_NAMED],
        "named_max": _NAMED,
        "jobs": jobs.jobs,
        "board": grafana.board(grafana_address, "fleet"),
    }


async def node(source: Source, grafana_address: str, name: str) -> Values:
    """Return a node: its devices, findings, what it measures, and what was decided."""
    detail, why, events, samples = await asyncio.gather(
        source.node(name), source.why(name), source.events(name, _EVENTS), source.samples(name)
    )
    return {
        "detail": detail,
        "node": detail.summary,
        "why": why,
        "events": events,
        "curves": curves_of_samples(samples),
        "board": grafana.board(grafana_address, "node", "node", name),
    }


async def job(source: Source, grafana_address: str, name: str) -> Values:
    """Return a job: where its time went, when what happened, and who holds it back."""
    detail, ledger, why, events, steps = await asyncio.gather(
        source.job(name),
        source.ledger(name),
        source.why(name),
        source.events(name, _EVENTS),
        source.steps(name),
    )
    account = account_of_job(ledger, detail, events)
    return {
        "detail": detail,
        "job": detail.summary,
        "ledger": ledger,
        "why": why,
        "events": events,
        "account": account,
        "waterfall": Markup(waterfall.waterfall(account)),
        "timeline": Markup(timeline.timeline(account)),
        "kinds": Markup(_kinds()),
        "incidents": sorted(account.incidents, key=lambda one: -one.onset_ns)[:_INCIDENTS],
        "incidents_all": len(account.incidents),
        "curves": curves_of_steps(steps),
        "board": grafana.board(grafana_address, "job", "job", detail.summary.job),
    }


def _kinds() -> str:
    names = {
        Group.INITIAL: "first start",
        Group.PRODUCTIVE: "training",
        Group.INCIDENT: "failure",
        Group.PLANNED: "planned work",
    }
    return svg.legend([(name, svg.FILLS[one]) for one, name in names.items()], 960)


async def kind_of(source: Source, name: str) -> str:
    """Return whether a name is of a "node", "job" or "incident". Raises NameNotFoundError."""
    try:
        return (await source.why(name)).kind or "node"
    except NameNotFoundError:
        listed = await source.incidents()
        if any(one.incident == name for one in listed.incidents):
            return "incident"
        raise


async def incident(source: Source, name: str) -> Values:
    """Return an incident: what was decided, its seconds, its evidence, and what was not done."""
    listed, rows = await asyncio.gather(source.incidents(), source.history("incident", name))
    found = next((one for one in listed.incidents if one.incident == name), None)
    if found is None:
        raise NameNotFoundError(
            f"no incident {name!r} is listed; 'everstep history incidents {name}' may have it"
        )
    # Its id begins with the job's: "train-3.7".
    subject = found.subjects[0] if found.subjects else name.rpartition(".")[0]
    detail = await source.job(subject)
    ledger, events = await asyncio.gather(
        source.ledger(subject), _events_of(source, found, detail.summary.job)
    )
    shown = [one for one in account_of_job(ledger, detail, []).incidents if one.id == name]
    stages = stages_of(shown[0]) if shown else []
    return {
        "incident": found,
        "job": detail.summary,
        "account": shown[0] if shown else None,
        "waterfall": Markup(stage_waterfall(shown[0])) if stages else "",
        "stages": [(one, meaning_of(one.name)) for one in stages],
        "evidence": await _evidence(source, found, rows),
        "events": events,
        "held_back": list(held_back(events)),
        "cut": len(events) >= _EVENTS_SINCE,
    }


async def _events_of(
    source: Source, found: admin_pb2.Incident, job_name: str
) -> list[admin_pb2.Event]:
    """Return what was said of its job and of the node that it is blamed on, while it lasted."""
    subjects = [job_name, *([found.node] if found.node else [])]
    asked = (_known(source, one, found.onset_ns) for one in subjects)
    events = [event for part in await asyncio.gather(*asked) for event in part]
    ends_ns = found.over_ns + _AFTER_NS if found.over_ns else None
    of_it = [one for one in events if ends_ns is None or one.at_ns <= ends_ns]
    return sorted(of_it, key=lambda one: (one.at_ns, one.id))


async def _known(source: Source, subject: str, since_ns: int) -> list[admin_pb2.Event]:
    """Return a subject's events; none of a node that was removed since."""
    try:
        return await source.events(subject, _EVENTS_SINCE, since_ns)
    except NameNotFoundError:
        return []


async def _evidence(
    source: Source, found: admin_pb2.Incident, rows: Iterable[admin_pb2.HistoryRow]
) -> list[str]:
    """Return what the judgement rested on, in sentences: as kept, and what is still open."""
    kept = [str(sentence) for row in rows for sentence in json.loads(row.told).get("evidence", ())]
    over_ns = found.over_ns or sys.maxsize
    return list(dict.fromkeys([*kept, *await _open_findings(source, found.node, over_ns)]))


async def _open_findings(source: Source, name: str, until_ns: int) -> list[str]:
    """Return what is open on a node since before a time; nothing of one that nobody knows."""
    if not name:
        return []
    try:
        detail = await source.node(name)
    except AdminError:
        return []
    return [
        f"{one.condition} on {one.node} {one.component}: {one.message}"
        + (f" ({one.evidence})" if one.evidence else "")
        for one in detail.findings
        if one.since_ns <= until_ns
    ]
