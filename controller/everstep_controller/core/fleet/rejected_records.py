"""Rejected records and orders: counted per node, kind and user, with a finding for each of them.

Such a record is acknowledged, or its agent would send it again for ever before all others; so this
is the only place that still knows of it. An order that an agent cannot use is told by the agent.
"""

from collections.abc import Iterator
from dataclasses import replace

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_common.printable import printable
from everstep_common.reports import OrderRejected
from everstep_controller.core import events
from everstep_controller.core.model.node import OpenFinding, RejectedRecords
from everstep_controller.core.model.state import State
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind, Turn

# After an hour without another one the finding is cleared.
QUIET_NS = 3_600_000_000_000
# Kinds are few and nodes are known by their certificates; this bounds what remains without any.
_KEPT_MAX = 1000
# What one node may have of that: its agent names the users.
_KEPT_OF_NODE_MAX = 64
_OTHERS = "others"
RECORD_REJECTED = Condition(
    name="RecordRejected",
    component="controller/records/NODE/KIND/USER",
    meaning="an agent sent a record that cannot be used; it is acknowledged and skipped; other "
    "records of the node are accepted",
    source="the first such record: agent and controller do not understand each other",
    clears_when="no other one came for an hour",
    quiet_ns=QUIET_NS,
    mode=Mode.ADVISE,
)

ORDER_REJECTED = Condition(
    name="OrderRejected",
    component="controller/orders/NODE/KIND",
    meaning="an agent cannot use a message of the controller and has left it out; what the message "
    "was for does not happen there, and its deadline decides what comes instead",
    source="the agent's word: agent and controller do not understand each other",
    clears_when="no other one came for an hour",
    quiet_ns=QUIET_NS,
    mode=Mode.ADVISE,
)


def record_rejected(turn: Turn, event: events.RecordRejected) -> None:
    """Count records that could not be used, and tell people of the first ones."""
    newest = RejectedRecords(
        event.node, event.kind, event.job, event.error, turn.now_ns, user=event.user
    )
    _count(turn, replace(newest, count=event.count))


def order_rejected(turn: Turn, event: events.Reported[OrderRejected]) -> None:
    """Count messages to an agent that it could not use, and tell people of the first ones."""
    report = event.report
    newest = RejectedRecords(
        event.origin.node,
        printable(report.kind),
        report.job,
        printable(report.error),
        turn.now_ns,
        to_agent=True,
    )
    _count(turn, replace(newest, count=report.count))


def forget_rejected(turn: Turn, key: str) -> None:
    """Forget records of a node, kind and user: none has been rejected for a while."""
    turn.state.rejected_records.pop(key, None)


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each kind of a node's records, or orders, that could not be used."""
    for rejected in state.rejected_records.values():
        yield OpenFinding(_finding(rejected), rejected.since_ns)


# -------------------------------------------------------------------------------------------------


def _count(turn: Turn, newest: RejectedRecords) -> None:
    kept = turn.state.rejected_records
    if _key(newest) not in kept and _has_many(turn.state, newest.node):
        newest = replace(newest, kind=_OTHERS, user="")
    key, condition = _key(newest), _condition(newest)
    known = kept.get(key)
    if known is None:
        _make_room(turn)
        known = kept[key] = replace(newest, count=0)
        turn.announce(newest.node, condition.name, _sentence(newest))
    known.count += newest.count
    known.last_ns = turn.now_ns
    job = turn.state.job(newest.job)
    if job is not None:
        turn.announce(job.name, condition.name, _sentence(newest))
    turn.set_timer(f"{TimerKind.REJECTED}/{key}", QUIET_NS)


def _key(one: RejectedRecords) -> str:
    """Return what they are kept by; a journal from before users were noted has none in it."""
    if one.to_agent:
        return f"{one.node}/orders/{one.kind}"
    return f"{one.node}/{one.kind}" + (f"/{one.user}" if one.user else "")


def _condition(one: RejectedRecords) -> Condition:
    return ORDER_REJECTED if one.to_agent else RECORD_REJECTED


def _has_many(state: State, node: str) -> bool:
    kept = state.rejected_records.values()
    return sum(one.node == node for one in kept) >= _KEPT_OF_NODE_MAX


def _make_room(turn: Turn) -> None:
    kept = turn.state.rejected_records
    if len(kept) >= _KEPT_MAX:
        oldest = min(kept, key=lambda key: kept[key].last_ns)
        del kept[oldest]
        turn.drop_timer(f"{TimerKind.REJECTED}/{oldest}")


def _sentence(one: RejectedRecords) -> str:
    if one.to_agent:
        return f"{one.node} cannot use the message {one.kind} and has left it out: {one.error}"
    whose = f" of user {one.user}" if one.user else ""
    return f"{one.node} sent a {one.kind}{whose} that cannot be used and was left out: {one.error}"


def _finding(rejected: RejectedRecords) -> Finding:
    condition, key = _condition(rejected), _key(rejected)
    orders = f"controller/orders/{rejected.node}/{rejected.kind}"
    return Finding(
        component=orders if rejected.to_agent else f"controller/records/{key}",
        condition=condition.name,
        mode=condition.mode,
        severity=Severity.DEGRADED,
        message=_sentence(rejected),
        evidence=f"{rejected.count} so far" + (f", of job {rejected.job}" * bool(rejected.job)),
        suggested_action=SuggestedAction.WATCH,
        rule="cleared by an hour without another one; the others of the node are taken",
    )


HANDLERS: Handlers = {
    events.RecordRejected: record_rejected,
    OrderRejected: order_rejected,
}
TIMERS: Timers = {
    TimerKind.REJECTED: forget_rejected,
}
