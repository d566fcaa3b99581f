"""Rejected records: counted per node and kind, with a finding for each of them.

Such a record is acknowledged, or its agent would send it again for ever before all others; so this
is the only place that still knows of it.
"""

from collections.abc import Iterator

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core import events
from everstep_controller.core.model.node import OpenFinding, RejectedRecords
from everstep_controller.core.model.state import State
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind, Turn

# After an hour without another one the finding is cleared.
QUIET_NS = 3_600_000_000_000
# Kinds are few and nodes are known by their certificates; this bounds what remains without any.
_KEPT_MAX = 1000
RECORD_REJECTED = Condition(
    name="RecordRejected",
    component="controller/records/NODE/KIND",
    meaning="an agent sent a record that cannot be used; it is acknowledged and skipped; other "
    "records of the node are accepted",
    source="the first such record: agent and controller do not understand each other",
    clears_when="no other one came for an hour",
    quiet_ns=QUIET_NS,
    mode=Mode.ADVISE,
)


def record_rejected(turn: Turn, event: events.RecordRejected) -> None:
    """Count records that could not be used, and tell people of the first ones."""
    kept = turn.state.rejected_records
    key = f"{event.node}/{event.kind}"
    known = kept.get(key)
    if known is None:
        _make_room(turn)
        known = kept[key] = RejectedRecords(
            event.node, event.kind, event.job, event.error, since_ns=turn.now_ns
        )
        turn.announce(event.node, "RecordRejected", _sentence(event.node, event.kind, event.error))
    known.count += event.count
    known.last_ns = turn.now_ns
    job = turn.state.job(event.job)
    if job is not None:
        turn.announce(job.name, "RecordRejected", _sentence(event.node, event.kind, event.error))
    turn.set_timer(f"{TimerKind.REJECTED}/{key}", QUIET_NS)


def forget_rejected(turn: Turn, key: str) -> None:
    """Forget records of a node and kind: none has been rejected for a while."""
    turn.state.rejected_records.pop(key, None)


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each node and kind of record that could not be used."""
    for rejected in state.rejected_records.values():
        yield OpenFinding(_finding(rejected), rejected.since_ns)


# -------------------------------------------------------------------------------------------------


def _make_room(turn: Turn) -> None:
    kept = turn.state.rejected_records
    if len(kept) >= _KEPT_MAX:
        oldest = min(kept, key=lambda key: kept[key].last_ns)
        del kept[oldest]
        turn.drop_timer(f"{TimerKind.REJECTED}/{oldest}")


def _sentence(node: str, kind: str, error: str) -> str:
    return f"{node} sent a {kind} that cannot be used and was left out: {error}"


def _finding(rejected: RejectedRecords) -> Finding:
    return Finding(
        component=f"controller/records/{rejected.node}/{rejected.kind}",
        condition=RECORD_REJECTED.name,
        mode=RECORD_REJECTED.mode,
        severity=Severity.DEGRADED,
        message=_sentence(rejected.node, rejected.kind, rejected.error),
        evidence=f"{rejected.count} so far" + (f", of job {rejected.job}" * bool(rejected.job)),
        suggested_action=SuggestedAction.WATCH,
        rule="cleared by an hour without another one; the others of the node are taken",
    )


HANDLERS: Handlers = {
    events.RecordRejected: record_rejected,
}
TIMERS: Timers = {
    TimerKind.REJECTED: forget_rejected,
}
