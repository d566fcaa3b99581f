"""Budgets of automation: how many working nodes it may keep out at once, and how much an hour.

A node counts while it is alive and claimed by automation, whichever came first: one that was lost
with its claim counts from its return on. An isolation, and a stop of a job that still steps, count
for an hour. The dead, releases, operators' words and jobs whose ranks died are never held back.

What is decided here follows from the state alone: times are dropped when the timer says so, never
by looking at them later.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.model.fleet_index import NOT_WORKING
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import (
    AUTOMATION,
    Claim,
    NodeRecord,
    NodeState,
    OpenFinding,
)
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import State, jobs_of_node
from everstep_controller.core.registry import Timers
from everstep_controller.core.turn import TimerKind, Turn

_HOUR_NS = 3_600_000_000_000
# Number of nodes that a sentence names.
_NAMED_MAX = 3
_UNLIMITED = 1_000_000_000

ISOLATION_HELD_BACK = Condition(
    name="IsolationHeldBack",
    component="controller/budget",
    meaning="automation would isolate nodes, or replace and check them, and its budgets do not "
    "allow it: so many at once are rarely all bad, so look at what finds them so",
    source="`core.isolation_budget_nodes` and `_ratio` at once, `core.isolations_per_hour_nodes` "
    "and `_ratio`; the same of each failure domain (`core.domain_…`) and of groups that have "
    "budgets; and `core.job_stops_per_hour` for each job that still steps",
    clears_when="a budget has room again, or nothing is found any more",
    mode=Mode.ADVISE,
)


# --- the level: at once --------------------------------------------------------------------------


def level_limit(state: State) -> int:
    """Return how many working nodes automation may keep isolated at once."""
    # No event retires a node so far; one that does takes it out of this number.
    return _larger(
        state, state.settings.isolation_budget_nodes, state.settings.isolation_budget_ratio
    )


def level(state: State) -> int:
    """Return how many nodes are alive and claimed by automation."""
    return len(state.index.isolated)


@dataclass(frozen=True, slots=True)
class _Level:
    """Level of the fleet, or of a part that has a budget of its own: isolated nodes, of at most.

    ``returned`` are those of them that got their claim when they were dead.
    """

    isolated: int
    returned: int
    limit: int


def _fleet_level(state: State) -> _Level:
    return _Level(level(state), len(state.index.returned), level_limit(state))


def _level_in(state: State, scope: str, limit: int) -> _Level:
    index = state.index
    return _Level(index.isolated_in.get(scope, 0), index.returned_in.get(scope, 0), limit)


def _is_spent(now: _Level, node: NodeRecord) -> bool:
    """Return whether automation has isolated as many others as it may.

    A new isolation gives way to all others, and so does one that came back with the claim that it
    got when it died. One that was isolated alive keeps its claim, unless it has been away as well
    and is checked while others have taken its place.
    """
    claim = node.claim_of(AUTOMATION)
    if claim is None or claim.dead:
        return now.isolated - (claim is not None) >= now.limit
    return node.state is NodeState.VALIDATING and now.isolated - now.returned > now.limit


# --- the rates: within an hour -------------------------------------------------------------------


def isolation_limit(state: State) -> int:
    """Return how many working nodes automation may isolate within an hour."""
    return _larger(
        state, state.settings.isolations_per_hour_nodes, state.settings.isolations_per_hour_ratio
    )


def record_isolation(turn: Turn, node: NodeRecord) -> None:
    """Count a working node that automation isolates now, for the fleet and for what it is in."""
    state = turn.state
    state.isolations_ns.append(turn.now_ns)
    for scope in state.index.scopes_of(node.name):
        state.isolations_in.setdefault(scope, []).append(turn.now_ns)
    _arm(turn)


def is_stopped_too_often(state: State, job: JobRecord) -> bool:
    """Return whether automation may not stop a job that still steps, for now."""
    return len(state.job_stops_ns.get(job.id, ())) >= state.settings.job_stops_per_hour


def record_stop(turn: Turn, job: JobRecord) -> None:
    """Count that automation stops a job now, if it still steps."""
    if job.state is JobState.RUNNING:
        turn.state.job_stops_ns.setdefault(job.id, []).append(turn.now_ns)
        _arm(turn)


def _arm(turn: Turn) -> None:
    if TimerKind.BUDGET not in turn.state.timers:
        turn.set_timer(TimerKind.BUDGET, _HOUR_NS)


def budget_due(turn: Turn, _: str) -> None:
    """An isolation, or a stop of a job, counts no more."""
    state, since_ns = turn.state, turn.now_ns - _HOUR_NS
    state.isolations_ns = [at_ns for at_ns in state.isolations_ns if at_ns > since_ns]
    within = {
        scope: [at_ns for at_ns in times_ns if at_ns > since_ns]
        for scope, times_ns in state.isolations_in.items()
    }
    state.isolations_in = {scope: times_ns for scope, times_ns in within.items() if times_ns}
    for job_id, stops_ns in list(state.job_stops_ns.items()):
        kept = [at_ns for at_ns in stops_ns if at_ns > since_ns]
        if len(kept) < len(stops_ns):
            turn.mark_job(job_id)
        if kept:
            state.job_stops_ns[job_id] = kept
        else:
            del state.job_stops_ns[job_id]
    counted = [state.isolations_ns, *state.job_stops_ns.values()]
    if oldest := [times_ns[0] for times_ns in counted if times_ns]:
        turn.set_timer(TimerKind.BUDGET, min(oldest) - since_ns)
    mark_deferred(turn)


# --- of parts of the fleet -----------------------------------------------------------------------


class PartBudget(NamedTuple):
    """Budgets of a part of the fleet, a failure domain or a group: at once, and within an hour."""

    scope: str
    at_once: int
    per_hour: int


def part_budgets(state: State, scopes: Iterable[str]) -> Iterator[PartBudget]:
    """Yield the budgets of failure domains, and of groups that have some."""
    for scope in scopes:
        members = state.index.members_in.get(scope, 0)
        kind, _, name = scope.partition(" ")
        if kind == "domain":
            yield _of_domain(state.settings, scope, members)
            continue
        group = state.groups.get(name)
        if group is not None:
            at_once, per_hour = group.isolation_budget_nodes, group.isolations_per_hour_nodes
            yield PartBudget(
                scope,
                _UNLIMITED if at_once is None else at_once,
                _UNLIMITED if per_hour is None else per_hour,
            )


def _of_domain(settings: Settings, scope: str, members: int) -> PartBudget:
    at_once = int(members * settings.domain_isolation_budget_ratio)
    per_hour = int(members * settings.domain_isolations_per_hour_ratio)
    return PartBudget(
        scope,
        max(settings.domain_isolation_budget_nodes, at_once),
        max(settings.domain_isolations_per_hour_nodes, per_hour),
    )


# --- what that means for a node ------------------------------------------------------------------


def exceeded(state: State, node: NodeRecord) -> str:
    """Return which budget forbids to isolate a node, or to keep it isolated; empty for none."""
    if node.state in NOT_WORKING:
        return ""
    parts = list(part_budgets(state, state.index.scopes_of(node.name)))
    if spent := _level_refusal(state, node, parts):
        return spent
    claim = node.claim_of(AUTOMATION)
    if claim is not None and not claim.dead:
        return ""
    return _rate_refusal(state, parts) or _stop_refusal(state, node, claim)


def _level_refusal(state: State, node: NodeRecord, parts: Iterable[PartBudget]) -> str:
    if _is_spent(_fleet_level(state), node):
        return f"the budget of {level_limit(state)} isolated nodes is spent"
    for part in parts:
        if _is_spent(_level_in(state, part.scope, part.at_once), node):
            return f"the budget of {part.scope} is spent: {part.at_once} isolated nodes"
    return ""


def _rate_refusal(state: State, parts: Iterable[PartBudget]) -> str:
    if len(state.isolations_ns) >= isolation_limit(state):
        return f"the budget of {isolation_limit(state)} isolations an hour is spent"
    for part in parts:
        if len(state.isolations_in.get(part.scope, ())) >= part.per_hour:
            return f"the budget of {part.scope} is spent: {part.per_hour} isolations an hour"
    return ""


def _stop_refusal(state: State, node: NodeRecord, claim: Claim | None) -> str:
    """Return which job's budget of stops forbids it; empty for none."""
    for job in jobs_of_node(state, node):
        stops = job.state is JobState.RUNNING and node.name in job.generation.members
        if stops and claim is None and is_stopped_too_often(state, job):
            times = state.settings.job_stops_per_hour
            return f"{job.name} still steps, and its budget of {times} stops an hour is spent"
    return ""


def mark_deferred(turn: Turn) -> None:
    """Have the nodes judged again that automation was not allowed to isolate: it may be now."""
    for name in (*turn.state.index.deferred, *turn.state.index.precursors):
        turn.mark_node(name)
    for job in turn.state.jobs.values():
        if job.slow.parts:
            turn.mark_job(job.id)


def mark_deferred_members(turn: Turn, job: JobRecord) -> None:
    """Have those of a job's nodes judged again: it may not step any more."""
    for name in turn.state.index.deferred:
        if name in job.generation.members:
            turn.mark_node(name)


def prolog_refusal(state: State, name: str) -> str:
    """Return why a node may not fail a prolog, which drains it like an isolation; "" if it may.

    Of the nodes that automation wanted to isolate and did not, the first ones by name have the room
    that the level leaves, less those that somebody else has taken out meanwhile. So a false finding
    on all nodes drains no more of them than a true one.
    """
    working = [one for one in state.index.deferred if not state.nodes[one].isolation.claims]
    out = level(state) + len(state.index.deferred) - len(working)
    if name not in working[max(0, level_limit(state) - out) :]:
        return ""
    others = len(state.index.deferred) - 1 + level(state)
    return (
        f"{others} other nodes are isolated or should be, and the fleet may lose "
        f"{level_limit(state)} at once"
    )


def summary(state: State) -> str:
    """Return how far the budgets are spent, in one line."""
    held_back = len(_held_back(state))
    at_once = f"{level(state)} of {level_limit(state)} working nodes isolated"
    rate = f"{len(state.isolations_ns)} of {isolation_limit(state)} isolations in an hour"
    spent = _spent_parts(state)
    return (
        f"{at_once}, {rate}"
        + (f"; spent: {', '.join(spent)}" if spent else "")
        + (f"; {held_back} held back" if held_back else "")
    )


def _spent_parts(state: State) -> list[str]:
    """Return which parts of the fleet have none of a budget left, in words."""
    known = sorted({*state.index.isolated_in, *state.isolations_in})
    found = []
    for part in part_budgets(state, known):
        out = state.index.isolated_in.get(part.scope, 0)
        within = len(state.isolations_in.get(part.scope, ()))
        if out >= part.at_once > 0:
            found.append(f"{part.scope} ({out} of {part.at_once} isolated)")
        elif within >= part.per_hour > 0:
            found.append(f"{part.scope} ({within} of {part.per_hour} in an hour)")
    more = [f"{len(found) - _NAMED_MAX} more"] if len(found) > _NAMED_MAX else []
    return found[:_NAMED_MAX] + more


def held_back_count(state: State) -> int:
    """Return how many nodes are not isolated because a budget forbids it."""
    return len(_held_back(state))


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding where budgets hold something back."""
    nodes = _held_back(state)
    if not nodes:
        return
    named = ", ".join(node.name for node in nodes[:_NAMED_MAX])
    more = f" and {len(nodes) - _NAMED_MAX} more" if len(nodes) > _NAMED_MAX else ""
    verb = "is" if len(nodes) == 1 else "are"
    finding = Finding(
        component=ISOLATION_HELD_BACK.component,
        condition=ISOLATION_HELD_BACK.name,
        mode=ISOLATION_HELD_BACK.mode,
        severity=Severity.DEGRADED,
        message=f"{named}{more} {verb} not isolated: {nodes[0].isolation.held_back}",
        evidence=summary(state),
        suggested_action=SuggestedAction.WATCH,
        rule="see 'everstep findings'; to isolate one all the same: everstep isolate NODE --reason "
        "…; cleared when the budget has room, or what was found is over",
    )
    yield OpenFinding(finding, min(node.isolation.held_back_ns for node in nodes))


def _held_back(state: State) -> list[NodeRecord]:
    known = (state.nodes[name] for name in state.index.deferred)
    return [node for node in known if node.isolation.held_back]


def _larger(state: State, count: int, ratio: float) -> int:
    return max(count, int(len(state.nodes) * ratio))


TIMERS: Timers = {
    TimerKind.BUDGET: budget_due,
}
