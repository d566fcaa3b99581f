"""Pair tests: a node that is named slow does fixed work beside good ones while no ranks are there.

Never is a job stopped for one. A node is tested where its ranks have gone for another reason: when
its job is between two generations, which then waits for some seconds, once for each nomination; or
when nothing runs on the node. A test that fails, is refused or comes late holds nothing up.
"""

from everstep_common import reports
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import (
    Finding,
    FindingKey,
    Mode,
    Severity,
    SuggestedAction,
)
from everstep_common.reports import PairTested
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.events import PairTestOrdered, Reported
from everstep_controller.core.jobs import transition
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.pair_test import (
    PAIR_HOLD_NS,
    PairOutcome,
    PairResult,
    RunningPairTest,
)
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import findings, lifecycle
from everstep_controller.core.recovery import pair_verdict
from everstep_controller.core.recovery.pair_partners import (
    PARTNERS,
    choose_partners,
    hardware,
    no_partner,
    takes_part,
    why_absent,
    why_occupied,
)
from everstep_controller.core.recovery.pair_verdict import PairPartner
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

PAIR_TEST_SLOW = Condition(
    name="PairTestSlow",
    component="node",
    meaning="fixed work takes longer on the node than on nodes like it, in each of three rounds: "
    "1.08 times as long on a GPU, 1.25 times on its processors or in their memory, while its "
    "partners agree with each other or with what they took before. Where only the host is slow, it "
    "is told and nothing more: any process there can make it so",
    source="a pair test, made where ranks have gone anyway: everstep check NODE --pair; the factor "
    "of GPUs is published for tests of pairs out of a job, that of hosts is ours",
    clears_when="a later pair test shows no difference, or an operator releases the node",
    mode=Mode.ADVISE,
)

_SECOND_NS = 1_000_000_000
# A node that was tested is not tested again by automation for so long.
REST_NS = 3600 * _SECOND_NS
# A nomination of a job that has gone long ago says nothing of the node as it is.
_STALE_NS = 24 * REST_NS
# Where a free node has no partner, one is looked for again after this.
_RETRY_NS = 60 * _SECOND_NS
# Members of one job that are tested at the same time.
_TOGETHER = 4

_KEY = FindingKey(PAIR_TEST_SLOW.component, PAIR_TEST_SLOW.name)


# --- who is to be tested -------------------------------------------------------------------------


def nominate(turn: Turn, node: NodeRecord, job: JobRecord, why: str) -> None:
    """Have a node tested that makes a job wait, when its ranks stop next. Said again: nothing."""
    pair = node.pair
    if is_rested(turn, node) and not pair.nominated_ns:
        pair.nominated_ns, pair.nominated_by, pair.why = turn.now_ns, job.id, why
        _list_wanted(turn.state, node)


def is_rested(turn: Turn, node: NodeRecord) -> bool:
    """Return whether automation may test a node: it has not been lately, and nobody forbids it."""
    lately = node.pair.done_ns and turn.now_ns - node.pair.done_ns < REST_NS
    mode = turn.state.mode_of(node, PAIR_TEST_SLOW.name, PAIR_TEST_SLOW.mode)
    return not lately and mode is not Mode.OBSERVE


def withdraw(state: State, node: NodeRecord, job: JobRecord) -> None:
    """Test a node no more that makes a job wait no more."""
    if node.pair.nominated_by == job.id:
        _drop_nomination(state, node)


def problem(state: State, name: str, partner: str) -> str:
    """Return why an operator's test cannot be made now, in one sentence; "" where it can."""
    node = state.nodes[name]
    if partner == name:
        return f"{name} cannot be its own partner"
    if why := why_occupied(state, node, None) or why_absent(node):
        return why
    if takes_part(state, node):
        return f"{name} takes part in a pair test already; ask again in some seconds"
    if not partner:
        found = list(choose_partners(state, node, state.nodes.values(), None))
        return "" if found else no_partner(state, node)
    other = state.nodes[partner]
    if hardware(other) != hardware(node):
        return f"{partner} has other accelerators or processors than {name}"
    if takes_part(state, other):
        return f"{partner} takes part in a pair test already; ask again in some seconds"
    return why_occupied(state, other, None) or why_absent(other)


def _list_wanted(state: State, node: NodeRecord) -> None:
    if node.name not in state.pair_wanted:
        state.pair_wanted.append(node.name)


def _drop_nomination(state: State, node: NodeRecord) -> None:
    pair = node.pair
    pair.nominated_ns, pair.nominated_by, pair.why = 0, "", ""
    if not pair.operator and node.name in state.pair_wanted:
        state.pair_wanted.remove(node.name)


# --- events --------------------------------------------------------------------------------------


def test_ordered(turn: Turn, event: PairTestOrdered) -> None:
    """An operator wants a node tested now."""
    node = turn.state.nodes[event.node]
    node.pair.operator, node.pair.partner = event.operator, event.partner
    _list_wanted(turn.state, node)
    turn.mark_node(node.name)
    beside = f" beside {event.partner}" if event.partner else ""
    turn.announce(node.name, "PairTestOrdered", f"{event.operator} has {node.name} tested{beside}")


def pair_tested(turn: Turn, event: Reported[PairTested]) -> None:
    """Take an agent's answer, of the node that is tested or of a partner."""
    node = turn.state.nodes[event.origin.node]
    for subject in (node, turn.state.nodes.get(node.pair.partner_of)):
        running = subject.pair.running if subject is not None else None
        if subject is None or running is None or event.report.order_id != running.id:
            continue
        if node is subject or node.name in running.partners:
            running.answers[node.name] = event.report
            turn.mark_node(subject.name)


def test_due(turn: Turn, name: str) -> None:
    """A test has taken too long, or a partner is looked for again."""
    turn.mark_node(name)


# --- reconciliation ------------------------------------------------------------------------------


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """End a test that is answered, or that nobody waits for any longer."""
    running = node.pair.running
    if running is None:
        return
    answer = running.answers.get(node.name)
    refused = answer is not None and bool(answer.refusal)
    complete = len(running.answers) == 1 + len(running.partners)
    if complete or refused or not turn.has_timer(TimerKind.PAIR, node.name):
        _conclude(turn, node, running)


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Begin the tests of a job's nominated members when none of its processes is left."""
    if not turn.state.pair_wanted or not _is_between(turn, job):
        return
    members = [turn.state.nodes[name] for name in job.generation.members]
    for node in members:
        begun = sum(one.pair.running is not None for one in members)
        if begun < _TOGETHER and _may_begin(turn, node, job):
            offered = (turn.state.nodes[name] for name in (*job.generation.members, *job.launchers))
            partners = list(choose_partners(turn.state, node, offered, job))
            if partners:
                _begin(turn, node, partners, job)
    if any(node.pair.running is not None for node in members):
        job.ledger.enter(turn.now_ns, transition.category(turn.state, job, Category.DIAGNOSE))


def reconcile_free(turn: Reconciliation) -> None:
    """Begin the tests of nodes on which nothing runs, and those that operators want."""
    for name in list(turn.state.pair_wanted):
        node = turn.state.nodes.get(name)
        if node is None:
            turn.state.pair_wanted.remove(name)
        elif node.pair.running is None:
            _reconcile_free(turn, node)


def holds(state: State, job: JobRecord) -> bool:
    """Return whether a job's next plan waits for a test."""
    if not job.generation.pair_tested or job.ending.wanted:
        return False
    running = (state.nodes[name].pair.running for name in job.generation.members)
    return any(one is not None and one.job == job.id for one in running)


def _is_between(turn: Turn, job: JobRecord) -> bool:
    """Return whether a generation has stopped on all nodes that can be waited for, and is new."""
    if job.state is not JobState.STOPPING or job.generation.pair_tested or job.ending.wanted:
        return False
    nodes, stopped = turn.state.nodes, job.generation.stopped
    members = job.generation.members
    return not turn.paused(job.name) and all(
        name in stopped or nodes[name].unreachable for name in members
    )


def _may_begin(turn: Turn, node: NodeRecord, job: JobRecord) -> bool:
    """Return whether a member is tested now; one that leaves its job keeps nobody waiting."""
    return (
        node.name in turn.state.pair_wanted
        and bool(node.pair.nominated_ns)
        and node.usable
        and not node.missed
        and not takes_part(turn.state, node)
        and not turn.paused(node.name)
        and not why_occupied(turn.state, node, job)
    )


def _reconcile_free(turn: Reconciliation, node: NodeRecord) -> None:
    pair, state = node.pair, turn.state
    if pair.operator:
        _begin_by_hand(turn, node)
        return
    if turn.now_ns - pair.nominated_ns > _STALE_NS:
        _drop_nomination(state, node)
        return
    waits = turn.has_timer(TimerKind.PAIR, node.name) or turn.paused(node.name)
    if waits or takes_part(state, node) or why_occupied(state, node, None) or why_absent(node):
        return
    partners = list(choose_partners(state, node, state.nodes.values(), None))
    if partners:
        _begin(turn, node, partners, None)
    else:
        turn.set_timer(f"{TimerKind.PAIR}/{node.name}", _RETRY_NS)


def _begin_by_hand(turn: Reconciliation, node: NodeRecord) -> None:
    pair, state = node.pair, turn.state
    operator, partner = pair.operator, pair.partner
    why = problem(state, node.name, partner)
    pair.operator = pair.partner = ""
    if not pair.nominated_ns:
        state.pair_wanted.remove(node.name)
    if why:
        pair.result = PairResult(_next_id(node), PairOutcome.UNDECIDED, why)
        turn.announce(node.name, "PairTestUndecided", why)
        return
    named = [state.nodes[partner]] if partner else []
    found = choose_partners(state, node, state.nodes.values(), None)
    others = [one for one in found if one.name != partner]
    _begin(turn, node, [*named, *others][:PARTNERS], None, operator)


def _begin(
    turn: Reconciliation,
    node: NodeRecord,
    partners: list[NodeRecord],
    job: JobRecord | None,
    operator: str = "",
) -> None:
    names = [one.name for one in partners]
    test_id = _next_id(node)
    node.pair.count += 1
    waiting = "" if job is None else job.id
    node.pair.running = RunningPairTest(test_id, names, job=waiting, operator=operator)
    for one in partners:
        one.pair.partner_of = node.name
    for one in (node, *partners):
        turn.order(*lifecycle.unanswered_pair_tests(turn.state, one))
    turn.set_timer(f"{TimerKind.PAIR}/{node.name}", PAIR_HOLD_NS)
    message = f"{node.name} does fixed work beside {' and '.join(names)}"
    if job is not None:
        job.generation.pair_tested = True
        message += f", for which {job.name} waits, {PAIR_HOLD_NS // _SECOND_NS} s at most"
    why = f": {node.pair.why}" if node.pair.why and not operator else ""
    turn.announce(node.name, "PairTestBegun", f"{message}{why}")


def _next_id(node: NodeRecord) -> str:
    return f"{node.name}/pair/{node.pair.count + 1}"


def _conclude(turn: Reconciliation, node: NodeRecord, running: RunningPairTest) -> None:
    state, pair = turn.state, node.pair
    partners = [
        PairPartner(name, running.answers.get(name), dict(state.nodes[name].pair.baseline))
        for name in running.partners
        if name in state.nodes
    ]
    answer = running.answers.get(node.name)
    result = pair_verdict.judge_pair(running.id, node.name, answer, partners)
    pair.running, pair.result, pair.done_ns = None, result, turn.now_ns
    turn.drop_timer(f"{TimerKind.PAIR}/{node.name}")
    _drop_nomination(state, node)
    for one in partners:
        record = state.nodes[one.name].pair
        record.partner_of = ""
        if result.outcome is not PairOutcome.UNDECIDED and one.answer is not None:
            record.baseline = record.baseline or pair_verdict.medians(one.answer)
    if running.job in state.jobs:
        turn.mark_job(running.job)
    _record_result(turn, node, answer, result)


def _record_result(
    turn: Reconciliation, node: NodeRecord, answer: PairTested | None, result: PairResult
) -> None:
    match result.outcome:
        case PairOutcome.SLOW:
            findings.raise_finding(turn, node, _finding(result))
        case PairOutcome.EQUAL:
            turn.announce(node.name, "PairTestPassed", result.sentence)
            findings.clear_finding(turn, node, _KEY, result.sentence)
            if answer is not None:
                node.pair.baseline = pair_verdict.medians(answer)
        case PairOutcome.UNDECIDED:
            turn.announce(node.name, "PairTestUndecided", result.sentence)


def _finding(result: PairResult) -> Finding:
    return Finding(
        component=PAIR_TEST_SLOW.component,
        condition=PAIR_TEST_SLOW.name,
        mode=PAIR_TEST_SLOW.mode,
        # What any process on the node can make is told, and no evidence.
        severity=Severity.DEGRADED if pair_verdict.is_of_devices(result) else Severity.INFO,
        message=result.sentence,
        suggested_action=SuggestedAction.WATCH,
        rule="see its clocks, power, heat, PCIe and memory: 'everstep node NODE'; test it again "
        "where no ranks run: 'everstep check NODE --pair'",
        injected=result.injected,
    )


HANDLERS: Handlers = {
    PairTestOrdered: test_ordered,
    reports.PairTested: pair_tested,
}
TIMERS: Timers = {
    TimerKind.PAIR: test_due,
}
