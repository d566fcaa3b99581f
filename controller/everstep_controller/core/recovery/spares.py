"""Spares: checks that show that they are good, when they become spares and while they wait.

No plan waits for an answer, and nothing that runs is touched: a node that fails is only no spare
any more, and is asked again. One that does not answer counts as if nobody had asked.
"""

from collections.abc import Set

from everstep_common import reports
from everstep_common.reports import CheckFinished
from everstep_controller.core.events import Reported
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.state import State, jobs_of_node
from everstep_controller.core.nodes import checks, lifecycle
from everstep_controller.core.nodes.claims import failed_check
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# Nodes are checked when they join; what passed so shortly before tells the same.
_FRESH_NS = 60_000_000_000

# An agent gives a check up after 60 s (its check_deadline_s), and says that it failed.
_ANSWER_NS = 180_000_000_000

# Also between two generations: who waits then is a spare that was one before.
_HAS_SPARES = frozenset({*ACTIVE, JobState.STOPPING, JobState.BACKING_OFF, JobState.REPLANNING})

# In any other state of its life a node is checked before it takes ranks.
_CHECKED_HERE = frozenset({NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION})


def reconcile_spares(turn: Reconciliation, names: Set[str]) -> None:
    """Have nodes checked that have become spares, and those whose next check is due."""
    for name in sorted(names & turn.state.nodes.keys()):
        if turn.state.settings.spare_check_interval_ns:
            _reconcile_spare(turn, turn.state.nodes[name])
        elif not turn.has_timer(TimerKind.SPARE, name):
            _note_passed(turn, turn.state.nodes[name])  # nobody checks it any more


def check_finished(turn: Turn, event: Reported[CheckFinished]) -> None:
    """Take the result of a check, of a spare or of a node in its own life."""
    if not _record_spare_check(turn, turn.state.nodes[event.origin.node], event):
        checks.record_check(turn, event)


def spare_check_due(turn: Turn, name: str) -> None:
    """The next check of a spare is due, or an answer has not come."""
    turn.mark_node(name)


def _record_spare_check(turn: Turn, node: NodeRecord, event: Reported[CheckFinished]) -> bool:
    """Take the answer to the newest check of a spare; return whether it was that."""
    check = node.spare_check
    if not check.number or event.report.order_id != lifecycle.spare_check_order(node).id:
        return False
    check.asked = False
    if event.report.passed:
        check.passed_ns = turn.now_ns
        _note_passed(turn, node)
    else:
        _note_failed(turn, node, event.report.message)
    _check_later(turn, node)
    return True


# -------------------------------------------------------------------------------------------------


def _reconcile_spare(turn: Reconciliation, node: NodeRecord) -> None:
    check = node.spare_check
    before, check.waits = check.waits, _waits(turn.state, node)
    is_due = not turn.has_timer(TimerKind.SPARE, node.name)
    if check.asked:
        if is_due:  # it has not answered
            check.asked = False
            _check_later(turn, node)
    elif is_due and ((before and check.waits) or (check.failed and node.state in _CHECKED_HERE)):
        _check(turn, node)
    elif check.waits and not before and not check.failed:
        _check_new_spare(turn, node)


def _check_new_spare(turn: Reconciliation, node: NodeRecord) -> None:
    passed_ns = node.spare_check.passed_ns
    fresh_ns = min(_FRESH_NS, turn.state.settings.spare_check_interval_ns)
    if passed_ns and turn.now_ns - passed_ns < fresh_ns:
        _check_later(turn, node)
    else:
        _check(turn, node)


def _waits(state: State, node: NodeRecord) -> bool:
    return node.usable and any(_spares(job, node.name) for job in jobs_of_node(state, node))


def _spares(job: JobRecord, node: str) -> bool:
    return job.state in _HAS_SPARES and node in job.launchers and node not in job.generation.members


def _check(turn: Reconciliation, node: NodeRecord) -> None:
    node.spare_check.number += 1
    node.spare_check.asked = True
    turn.order(lifecycle.spare_check_order(node))
    turn.set_timer(f"{TimerKind.SPARE}/{node.name}", _ANSWER_NS)


def _check_later(turn: Turn, node: NodeRecord) -> None:
    settings = turn.state.settings
    after_ns = settings.spare_check_interval_ns
    if node.spare_check.failed:
        after_ns = min(after_ns, settings.recheck_ns)
    turn.set_timer(f"{TimerKind.SPARE}/{node.name}", after_ns)


def _note_failed(turn: Turn, node: NodeRecord, message: str) -> None:
    check = node.spare_check
    before, check.failed = check.failed, message or "its agent does not say why"
    turn.mark_node(node.name)
    if check.failed != before:
        turn.announce(node.name, "SpareCheckFailed", failed_check(node))


def _note_passed(turn: Turn, node: NodeRecord) -> None:
    failed, node.spare_check.failed = node.spare_check.failed, ""
    if failed:
        turn.mark_node(node.name)
        turn.announce(node.name, "SpareCheckPassed", f"{node.name} may be a spare again")


HANDLERS: Handlers = {
    reports.CheckFinished: check_finished,
}
TIMERS: Timers = {
    TimerKind.SPARE: spare_check_due,
}
