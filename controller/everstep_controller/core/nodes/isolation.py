"""Node isolation at schedulers: drivers are asked for the difference between claims and holds.

What is wanted follows from the claims alone. A driver is read before it is asked for anything, and
is asked only for what is not so already; so a start of the controller changes nothing at a
scheduler that is as it should be. What differs by another's hand is left alone: a node that others
withhold gets a claim of the owner ``scheduler`` and is never freed by us, and one that others freed
in spite of our claims is not withheld again for the same claims.

A call that failed is tried again by a timer of the core, ever more seldom: the count is part of the
state, so that a restart does not reset it, and it needs no jitter, because one
controller makes one call at a time to each scheduler.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Mode
from everstep_controller.core import events
from everstep_controller.core.actions import Action, ApplyIsolation, ReadIsolation
from everstep_controller.core.events import DriverReported
from everstep_controller.core.model.isolation import (
    DriverRecord,
    IsolationResult,
    NodeIsolation,
    SeenHold,
    WantedIsolation,
)
from everstep_controller.core.model.node import SCHEDULER, NodeRecord
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.nodes import claims, indexing
from everstep_controller.core.nodes.isolation_differences import (
    claims_on,
    is_claimed,
    is_due,
    is_own,
    is_so,
    is_undone,
    wanted_of,
)
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# So many calls in a row that fail are a finding: a scheduler that restarts fails one or two.
FAILURES_MAX = 3
_NAMED_MAX = 20
_RETRY_NS = 2_000_000_000
# A scheduler that is away for a day costs the journal two rows a minute.
_RETRY_NS_MAX = 60_000_000_000

DRIVER_FAILED = Condition(
    name="IsolationDriverFailed",
    component="controller/drivers/NAME",
    meaning="calls of an isolation driver fail again and again: a scheduler may place work on a "
    "node that Everstep keeps out, or goes on withholding one that is free",
    source="any error of the driver, and a call without an answer within `drivers.call_timeout_s`",
    clears_when="all requested changes are done; they are retried at least every minute",
    raise_after=FAILURES_MAX,
    mode=Mode.ADVISE,
)

# --- events --------------------------------------------------------------------------------------


def restart_drivers(turn: Turn) -> None:
    """Have every scheduler read before anything is asked of it: it may have changed meanwhile."""
    for record in turn.state.drivers.values():
        record.read, record.reading = False, True
        turn.drop_timer(_timer(record))
        for known in record.nodes.values():
            known.asked, known.waiting, known.unmanaged = None, False, ()


def forget_asked(state: State) -> None:
    """Wait for nothing that was asked: what of it is not under way is not done."""
    for record in state.drivers.values():
        for known in record.nodes.values():
            known.asked, known.waiting = None, False


def configure_drivers(turn: Turn, names: Sequence[str]) -> None:
    """Take up the drivers that are configured, and forget others with what they told.

    Nodes are filed anew: their groups, and what these say, may be others.
    """
    state = turn.state
    for name in sorted(state.drivers.keys() - set(names)):
        record = state.drivers.pop(name)
        _announce_removed(turn, record)
        turn.drop_timer(_timer(record))
        _mark(turn, record.nodes)
    state.reindex()
    for record in state.drivers.values():
        _forget_labels(record, state.group_table.label_keys)
    for name in names:
        if name not in state.drivers:
            state.drivers[name] = DriverRecord(name, reading=True)
            turn.unsent.drivers.add(name)


def record_report(turn: Turn, event: DriverReported) -> None:
    """Remember what a driver told, and what it could not do."""
    record = turn.state.drivers.get(event.driver)
    if record is None:
        return
    was_failing = is_failing(record)
    for seen in event.seen:
        _record_hold(turn, record, seen)
    for result in event.results:
        _record_result(turn, record, result)
    if event.read:
        _record_reading(turn, record)
        record.down = dict(event.down)
        _record_labels(turn, record, event.labels)
        for name in record.down.keys() & turn.state.nodes.keys():
            turn.mark_node(name)
    _count_failures(record, event)
    _plan_retry(turn, record)
    _announce_driver(turn, record, was_failing=was_failing)


def retry_driver(turn: Turn, name: str) -> None:
    """Have a scheduler read after a call has failed: nobody knows how far that had come."""
    record = turn.state.drivers.get(name)
    if record is not None:
        record.reading = True
        turn.unsent.drivers.add(name)


# --- reconciliation ------------------------------------------------------------------------------


def claim_for_schedulers(turn: Reconciliation, node: NodeRecord) -> None:
    """Keep a node's claim of the owner ``scheduler`` as long as others withhold the node."""
    told, held = _foreign_holds(turn.state, node.name), node.claim_of(SCHEDULER)
    if told and (held is None or held.reason != told):
        claims.drain(turn, node, claims.ClaimCause(SCHEDULER, told))
    elif held is not None and not told:
        claims.unclaim(turn, node, SCHEDULER, "it is not kept out there any more")


def read_schedulers(turn: Reconciliation) -> None:
    """Have those read of which a reading has become due."""
    drivers = turn.state.drivers
    turn.order(*(_read(drivers[name]) for name in sorted(turn.unsent.drivers & drivers.keys())))


def apply_claims(turn: Reconciliation, names: Collection[str]) -> None:
    """Ask drivers for what is wanted of the nodes that may have changed, and is not so.

    Nothing is asked of one that was not read since the start, nor of any while all are paused.
    """
    for record in turn.state.drivers.values() if names else ():
        known = (_ask(turn, record, name) for name in sorted(names))
        asked = [one for one in known if one is not None]
        if asked:
            record.calls += 1
            turn.order(_apply(record, asked))


def outstanding_calls(state: State) -> Iterator[Action]:
    """Yield the calls of drivers that have not been answered."""
    for record in state.drivers.values():
        if record.reading:
            yield _read(record)
        asked = [one.asked for one in record.nodes.values() if one.asked and not one.waiting]
        if record.read and asked and not state.drivers_paused:
            yield _apply(record, asked)


def is_failing(record: DriverRecord) -> bool:
    """Return whether calls fail so often in a row that people should look at the driver."""
    return record.failures >= FAILURES_MAX


# -------------------------------------------------------------------------------------------------


def _record_reading(turn: Turn, record: DriverRecord) -> None:
    """Take a reading as what is so: what failed and is done all the same is not asked for again."""
    nodes = turn.state.nodes
    if not record.read:
        _mark(turn, (name for name, node in nodes.items() if node.isolation.claims))
        _mark(turn, record.nodes)
    record.read, record.reading = True, False
    for name, known in record.nodes.items():
        if known.waiting:
            known.asked, known.waiting = None, False
        if known.failure and name in nodes and is_so(wanted_of(turn.state, record, name), known):
            known.failure = ""
        if known.failure:
            _mark(turn, [name])


def _record_hold(turn: Turn, record: DriverRecord, seen: SeenHold) -> None:
    known = record.nodes.setdefault(seen.node, NodeIsolation())
    had, known.hold, known.unmanaged = known.applied, seen.hold, ()
    if seen.hold is not None and seen.hold.ours:
        # The scheduler may have cut the sentence short, so it is only taken when none is remembered
        # here.
        known.applied = seen.hold.reason if had is None else had
        known.overridden = ()
    else:
        known.applied, known.answered = None, None
    if seen.hold is None and had is not None:
        _record_freed(turn, record, seen.node, known)
    _mark(turn, [seen.node])
    _forget_if_plain(record, seen.node)


def _record_labels(turn: Turn, record: DriverRecord, told: Mapping[str, Mapping[str, str]]) -> None:
    """Take what a scheduler says of nodes; their groups may be others by that."""
    for name, labels in told.items():
        if labels:
            record.labels[name] = dict(labels)
        else:
            record.labels.pop(name, None)
        node = turn.state.nodes.get(name)
        if node is not None:
            indexing.refresh(turn, node)
            turn.mark_node(name)


def _forget_labels(record: DriverRecord, keys: Collection[str]) -> None:
    """Keep only what groups select by."""
    kept = {
        name: {key: value for key, value in labels.items() if key in keys}
        for name, labels in record.labels.items()
    }
    record.labels = {name: labels for name, labels in kept.items() if labels}


def _record_freed(turn: Turn, record: DriverRecord, name: str, known: NodeIsolation) -> None:
    """Leave a node alone that somebody freed though it is claimed."""
    if not is_claimed(turn.state, name):
        return
    if not is_own(turn.state, record.name, name):
        return  # it is another driver's by now, and was to be freed
    known.overridden, known.asked = claims_on(turn.state.nodes[name]), None
    known.waiting = False
    turn.announce(name, "IsolationOverridden", overridden_sentence(record, name))


def _record_result(turn: Turn, record: DriverRecord, result: IsolationResult) -> None:
    wanted = result.wanted
    known = record.nodes.setdefault(wanted.node, NodeIsolation())
    _mark(turn, [wanted.node])
    if failure := result.failure or _contradiction(result):
        known.waiting = known.asked == wanted
        if not known.failure:
            what = f"driver {record.name} failed for {wanted.node}, and tries again: {failure}"
            turn.announce(wanted.node, "IsolationFailed", what)
        known.failure = failure
        return
    known.hold, known.failure, known.overridden = result.hold, "", ()
    known.differs_since_ns = 0
    ours = result.hold is not None and result.hold.ours
    known.applied, known.answered = (wanted.reason, wanted) if ours else (None, None)
    node = turn.state.nodes.get(wanted.node)
    known.unmanaged = claims_on(node) if result.unmanaged and node is not None else ()
    if known.asked == wanted:
        known.asked, known.waiting = None, False
    _forget_if_plain(record, wanted.node)


def _contradiction(result: IsolationResult) -> str:
    """Return how an answer without a failure is none; empty when it is good."""
    if result.wanted.withheld and result.hold is None and not result.unmanaged:
        return "it says that it has done so, and that the scheduler still places work there"
    if not result.wanted.withheld and result.hold is not None and result.hold.ours:
        return "it says that it has freed the node, and that the scheduler still withholds it"
    return ""


def _forget_if_plain(record: DriverRecord, name: str) -> None:
    if record.nodes[name] == NodeIsolation():
        del record.nodes[name]


def _ask(turn: Turn, record: DriverRecord, name: str) -> WantedIsolation | None:
    """Return what is to be asked for of a node now, and remember that it was."""
    state = turn.state
    node, known = state.nodes.get(name), record.nodes.get(name)
    if node is None:
        return None
    wanted = wanted_of(state, record, name)
    if known is None and not wanted.withheld:
        return None
    known = record.nodes.setdefault(name, NodeIsolation())
    _forget_old_claims(node, known)
    differs = is_undone(wanted, known)
    known.differs_since_ns = (known.differs_since_ns or turn.now_ns) if differs else 0
    if known.foreign or known.overridden or known.unmanaged:
        known.asked, known.waiting, known.failure = None, False, ""
    elif record.read and not state.drivers_paused and is_due(wanted, known):
        known.asked, known.waiting = wanted, False
        return wanted
    _forget_if_plain(record, name)
    return None


def _forget_old_claims(node: NodeRecord, known: NodeIsolation) -> None:
    """Keep what was so for the claims on a node only while they are the same."""
    now = claims_on(node)
    if known.overridden != now:
        known.overridden = ()
    if known.unmanaged != now:
        known.unmanaged = ()


def _mark(turn: Turn, names: Iterable[str]) -> None:
    for name in names:
        if name in turn.state.nodes:
            turn.mark_node(name)


def _foreign_holds(state: State, name: str) -> str:
    """Return who else keeps a node out and why; empty for nobody."""
    found = []
    for record in state.drivers.values():
        known = record.nodes.get(name)
        if known is None or known.hold is None or not known.foreign:
            continue
        if is_own(state, record.name, name):
            found.append(f"{record.name}: {known.hold.reason or 'no reason given'}")
    return "; ".join(found)


def _count_failures(record: DriverRecord, event: DriverReported) -> None:
    """Count a call that failed; none counts any more once nothing is left undone."""
    of_nodes = (f"{name}: {known.failure}" for name, known in record.nodes.items() if known.failure)
    failure = event.failure or next(of_nodes, "")
    if not failure:
        record.failure, record.failures = "", 0
    elif event.failure or _has_failed(record, event.results):
        record.failure, record.failures = failure, record.failures + 1


def _has_failed(record: DriverRecord, results: Iterable[IsolationResult]) -> bool:
    asked = (record.nodes.get(result.wanted.node) for result in results)
    return any(known is not None and bool(known.failure) for known in asked)


def _plan_retry(turn: Turn, record: DriverRecord) -> None:
    failures, timer = record.failures, _timer(record)
    if not failures:
        record.failing_since_ns = 0
        turn.drop_timer(timer)
        return
    record.failing_since_ns = record.failing_since_ns or turn.now_ns
    if timer not in turn.state.timers:
        # Past the seventh the wait does not grow any more.
        turn.set_timer(timer, min(_RETRY_NS_MAX, _RETRY_NS << min(failures - 1, 6)))


def _announce_driver(turn: Turn, record: DriverRecord, *, was_failing: bool) -> None:
    if is_failing(record) and not was_failing:
        turn.announce(CONTROLLER, DRIVER_FAILED.name, trouble(record))
    elif was_failing and not is_failing(record):
        turn.announce(
            CONTROLLER, f"{DRIVER_FAILED.name}Cleared", f"driver {record.name} does as it is asked"
        )


def _announce_removed(turn: Turn, record: DriverRecord) -> None:
    """Tell people of the nodes that a driver leaves withheld at its scheduler."""
    left = sorted(name for name, known in record.nodes.items() if known.applied is not None)
    if not left:
        return
    more = f" and {len(left) - _NAMED_MAX} more" if len(left) > _NAMED_MAX else ""
    turn.announce(
        CONTROLLER,
        "DriverRemoved",
        f"driver {record.name} is not configured any more, and what it has withheld stays so at "
        f"its scheduler: {', '.join(left[:_NAMED_MAX])}{more}; free them there, or configure it "
        "again and release them first",
    )


def trouble(record: DriverRecord) -> str:
    """Return that a driver fails, in a sentence."""
    return f"isolation driver {record.name} fails: {record.failure}"


def overridden_sentence(record: DriverRecord, node: str) -> str:
    """Return that somebody freed a node at a scheduler that is claimed here."""
    return (
        f"somebody freed {node} at driver {record.name} in spite of a claim: it takes no ranks, "
        f"but others may place work there; to give it back: everstep release {node}"
    )


def _timer(record: DriverRecord) -> str:
    return f"{TimerKind.ISOLATION}/{record.name}"


def _read(record: DriverRecord) -> ReadIsolation:
    return ReadIsolation(
        id=f"isolation/{record.name}/read",
        driver=record.name,
        reason="what its scheduler withholds is to be known before anything is asked of it",
    )


def _apply(record: DriverRecord, wanted: list[WantedIsolation]) -> ApplyIsolation:
    return ApplyIsolation(
        id=f"isolation/{record.name}/{record.calls}",
        driver=record.name,
        reason="claims differ from what its scheduler withholds",
        wanted=tuple(wanted),
    )


HANDLERS: Handlers = {
    events.DriverReported: record_report,
}
TIMERS: Timers = {
    TimerKind.ISOLATION: retry_driver,
}
