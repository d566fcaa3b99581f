"""Recovery plans: the members of the next generation in rank order, with spares or without."""

from collections.abc import Iterator, Sequence, Set

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.fleet.incidents import open_incident
from everstep_controller.core.jobs import devices, ending, lost_jobs, orders, restore_point
from everstep_controller.core.jobs.lifecycle import JobEvent
from everstep_controller.core.jobs.transition import move_job
from everstep_controller.core.model.agents import SeenGeneration
from everstep_controller.core.model.hang import hung_again
from everstep_controller.core.model.job import (
    Generation,
    JobRecord,
    JobState,
    Members,
    PlanKind,
)
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import claims
from everstep_controller.core.recovery import backoff, blame, pair_tests, placement
from everstep_controller.core.registry import Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

_DISTRUST = {NodeState.HEALTHY: 0, NodeState.PROBATION: 1, NodeState.SUSPECT: placement.SUSPECT}

# All launchers of a job are told of each of so many that join. Of more they are told when they have
# become twice as many, and so long after that: messages grow with the nodes, not with their square.
_TOLD_EACH = 16
_TELL_LATE_NS = 5_000_000_000

# Between two generations, or before the first one, a job goes on by what nodes do or can do.
_WAITING = frozenset(
    {
        JobState.FORMING,
        JobState.WAITING_CAPACITY,
        JobState.BACKING_OFF,
        JobState.WAITING_STATE,
        JobState.STOPPING,
        JobState.REPLANNING,
    }
)


def reconsider(turn: Reconciliation, job: JobRecord) -> None:
    """See whether the job can take its next step now. Safe to call at any time."""
    if job.state not in _WAITING or _awaits_agents(turn.state, job):
        return
    if job.state is JobState.FORMING:
        _form(turn, job)
    elif job.state in (JobState.WAITING_CAPACITY, JobState.BACKING_OFF):
        plan(turn, job)
    elif job.state is JobState.WAITING_STATE:
        if may_ask_again(turn.state, job, choose_members(turn.state, job)[0]):
            plan(turn, job)
    elif job.state is JobState.STOPPING:
        _stopping(turn, job)
    elif job.state is JobState.REPLANNING and job.generation.cause is not None:
        # A member was lost before the plan was carried out.
        plan(turn, job)


def wait_over(turn: Turn, job_id: str) -> None:
    """A job has waited long enough for more nodes than it needs."""
    # The timer stays in the state: that it is overdue lets the job begin with fewer nodes.
    job = turn.state.jobs.get(job_id)
    if job is not None and job.state is JobState.FORMING:
        turn.state.timers[f"{TimerKind.FORMING}/{job_id}"] = turn.now_ns
        turn.mark_job(job_id)


def retry_due(turn: Turn, job_id: str) -> None:
    """It is time to ask again for a state that nobody has given back, or to tell who joined."""
    job = turn.state.jobs.get(job_id)
    if job is not None:
        job.news.due.append(TimerKind.RETRY)
        turn.mark_job(job_id)


def _awaits_agents(state: State, job: JobRecord) -> bool:
    """Return whether none of a job's nodes has come back yet since the controller started."""
    away = False
    for node in (state.nodes[name] for name in job.launchers):
        if not node.unreachable:
            if node.identity.welcomed_term == state.term:
                return False  # asked at every event of the job: as a rule the first one is back
            away = True
    return away


def _form(turn: Reconciliation, job: JobRecord) -> None:
    if job.ending.wanted:
        ending.end_job(turn, job, succeeded=False, reason=job.ending.wanted)
        return
    timer = f"{TimerKind.FORMING}/{job.id}"
    waited = turn.state.timers.get(timer, turn.now_ns + 1) <= turn.now_ns
    if not _may_be_enough(turn.state, job, waited=waited):
        _say_who_joined(turn, job, len(job.launchers))
        return
    trusted_ones = len(candidates(turn.state, job))
    ready = trusted_ones + len(last_resorts(turn.state, job))
    if trusted_ones >= job.spec.nodes_max or (ready >= job.spec.nodes_min and waited):
        if not _why_put_off(turn, job):
            turn.drop_timer(timer)
        plan(turn, job)
        return
    if waited:
        turn.drop_timer(timer)
    if ready >= job.spec.nodes_min and timer not in turn.state.timers:
        turn.set_timer(timer, turn.state.settings.last_call_timeout_ns)
    _say_who_joined(turn, job, ready)


def _may_be_enough(state: State, job: JobRecord, *, waited: bool) -> bool:
    """Return whether it depends on its nodes what a forming job does now, not on their number."""
    joined = len(job.launchers)
    if joined <= _TOLD_EACH or joined >= job.spec.nodes_max:
        return True
    last_call = f"{TimerKind.FORMING}/{job.id}" in state.timers
    return joined >= job.spec.nodes_min and (waited or not last_call)


def _say_who_joined(turn: Reconciliation, job: JobRecord, ready: int) -> None:
    """Tell all launchers how many nodes there are: of thousands, seldom while they still come."""
    joined = len(job.launchers)
    told_now = joined <= _TOLD_EACH or TimerKind.RETRY in job.news.due
    timer = f"{TimerKind.RETRY}/{job.id}"
    if not told_now and joined < 2 * job.launchers_told:
        if joined != job.launchers_told:
            job.reason = _who_joined(job, ready)
            if timer not in turn.state.timers:
                turn.set_timer(timer, _TELL_LATE_NS)
        return
    kept = _why_ineligible(turn.state, job)
    job.launchers_told = joined
    reason = f"{_who_joined(job, ready)}{kept}{_unstopped(job)}"
    if reason != job.reason or joined > _TOLD_EACH:
        job.reason = reason
        orders.hold_all(turn, job)


def _who_joined(job: JobRecord, ready: int) -> str:
    return f"{ready} of {job.spec.nodes_max} nodes have joined, it needs {job.spec.nodes_min}"


def _stopping(turn: Reconciliation, job: JobRecord) -> None:
    stopped, nodes = job.generation.stopped, turn.state.nodes
    left = len(job.generation.members) - len(stopped)
    if left > len(nodes) - turn.state.index.heard.total:
        return  # asked at every answer of a member: whoever is missing, one of them is heard
    silent = (
        name
        for name in job.generation.members
        if name not in stopped and not nodes[name].unreachable
    )
    missing = next(silent, None)
    if missing is None:
        if not pair_tests.holds(turn.state, job):
            plan(turn, job)
    elif not nodes[missing].liveness.connected and not any(
        nodes[name].liveness.connected for name in silent
    ):
        # Only the verdict on silent nodes is missing.
        segment = job.ledger.segments[-1]
        if segment.category == Category.DRAIN:
            job.ledger.enter(turn.now_ns, Category.DIAGNOSE)


def candidates(state: State, job: JobRecord) -> list[NodeRecord]:
    """Return the nodes that could take ranks of a job, most trusted first, without last resorts.

    Neither a failed check of a spare nor an agent whose stream flaps speaks against a node of which
    the job has ranks already.
    """
    seats = frozenset(job.generation.members)
    offered = _offered(state, job, seats)
    able = [node for node in offered if node.name in seats or not node.streams.flaps_since_ns]
    return sorted(able, key=lambda node: (distrust(node), node.name))


def last_resorts(state: State, job: JobRecord) -> list[NodeRecord]:
    """Return the nodes that get ranks of a job only where it would have too few without them."""
    if not state.index.flapping:
        return []
    seats = frozenset(job.generation.members)
    offered = _offered(state, job, seats)
    able = [node for node in offered if node.name not in seats and node.streams.flaps_since_ns]
    return sorted(able, key=lambda node: (distrust(node), node.name))


def _offered(state: State, job: JobRecord, seats: Set[str]) -> Iterator[NodeRecord]:
    """Yield the nodes with a launcher of a job that may take ranks, and have room for them."""
    for name, launcher in job.launchers.items():
        node = state.nodes[name]
        able = node.usable and not launcher.stale_generation
        is_spare = name in seats or not claims.failed_check(node)
        if able and is_spare and devices.has_room(state, node, job):
            yield node


def distrust(node: NodeRecord) -> int:
    """Return how little a node is trusted: 0 for a healthy one."""
    if node.missed or node.isolation.deferred:
        return placement.SUSPECT
    # Of two spares, one whose check is not outstanding comes first.
    return max(_DISTRUST[node.state], int(node.spare_check.asked))


def _last_choice(state: State, job: JobRecord, node: NodeRecord) -> int:
    """Return the distrust of a node; one that it would share with another job comes last."""
    if node.name in job.generation.members:
        return distrust(node)
    if node.streams.flaps_since_ns:
        return placement.LAST
    return max(distrust(node), int(bool(devices.occupants(state, node, job))))


def choose_members(state: State, job: JobRecord) -> tuple[list[str], PlanKind]:
    """Return the members of the next generation in rank order, and which kind of plan that is.

    Members keep their places, spares take the places of those that are gone (one of the same
    domain first), and without a spare the job re-forms if it may. Too few is an empty list.
    """
    able = trusted(state, job)
    members, kind = place_members(state, job, able)
    wanted = len(job.generation.members) or job.spec.nodes_min
    last = last_resorts(state, job) if len(members) < wanted else []
    if last:
        able = [*able, *last]
        members, kind = place_members(state, job, able, wanted)
    leaving = [] if members else _leaving(state, job)
    # A node that is being drained is better than no node at all.
    return place_members(state, job, [*able, *leaving]) if leaving else (members, kind)


def trusted(state: State, job: JobRecord) -> Sequence[NodeRecord]:
    """Return the candidates without members that are doubted, as far as spares take their places.

    Where automation may only advise to isolate, the node stays in use; but no job has to go back
    to it, nor to one that still holds what was killed or memory of a device, or whose agent has not
    answered.
    An equally doubted spare takes no place: otherwise two such nodes would swap at every plan.
    """
    seats, able = frozenset(job.generation.members), candidates(state, job)
    good = [n for n in able if n.name in seats or distrust(n) < placement.SUSPECT]
    for doubted in [node for node in good if _doubt(job, node)]:
        worse = [n for n in good if n.name not in seats and _doubt(job, n) >= _doubt(job, doubted)]
        left_out = {node.name for node in (doubted, *worse)}
        others = [node for node in good if node.name not in left_out]
        if place_members(state, job, others)[1] is PlanKind.SPARE:
            able, good = [node for node in able if node.name not in left_out], others
    return able


def _doubt(job: JobRecord, node: NodeRecord) -> int:
    """Return how little a job should go back to a node; 0: nothing speaks against it."""
    if node.isolation.deferred:
        return 2
    flaps = bool(node.streams.flaps_since_ns)
    hung = node.name in hung_again(job.recovery.hangs) or blame.died_again(job, node.name)
    return int(flaps or hung or node.name in job.overdue or still_held(job, node.name))


def _leaving(state: State, job: JobRecord) -> list[NodeRecord]:
    nodes = [state.nodes[name] for name in job.generation.members if name in job.launchers]
    return [
        node
        for node in nodes
        if node.draining
        and not node.vacated
        and node.fit
        and not job.launchers[node.name].stale_generation
    ]


def place_members(
    state: State, job: JobRecord, nodes: Sequence[NodeRecord], most: int | None = None
) -> tuple[list[str], PlanKind]:
    """Return what choose_members does, of these nodes only, and at most so many of them."""
    able = [
        placement.Candidate(node.name, node.spec.domain, _last_choice(state, job, node))
        for node in nodes
    ]
    domains = {name: state.nodes[name].spec.domain for name in job.generation.members}
    placed = placement.place_nodes(
        job.generation.members, domains, able, most or job.spec.nodes_max, job.spec.replica_nodes
    )
    places = placed.places
    if len(places) == len(job.generation.members) and places:
        return places, PlanKind.SPARE if placed.replaced else PlanKind.IN_PLACE
    enough = (
        job.spec.nodes_min
        if job.spec.reform or not job.generation.members
        else len(job.generation.members)
    )
    if len(places) < enough:
        return [], PlanKind.WAITED
    return places, PlanKind.REFORM if job.generation.members else PlanKind.FIRST


def _why_ineligible(state: State, job: JobRecord) -> str:
    return claims.ineligible_launchers(state, job) + devices.occupied_launchers(state, job)


def plan(turn: Reconciliation, job: JobRecord) -> None:
    """Make the next generation's plan, or say what it waits for."""
    if not turn.paused(job.name) and not job.generation.unreachable:
        blame.judge_end(turn, job)
        if turn.marks.nodes:
            turn.mark_job(job.id)  # a node is blamed: what is made of that comes before the plan
            return
    refusal = job.ending.wanted or _given_up(turn.state, job)
    if refusal:
        ending.close_job(turn, job, refusal)
        return
    if held := _why_put_off(turn, job):
        wait_for_capacity(turn, job, held)
        return
    if backoff.waits(turn, job):
        _back_off(turn, job)
        return
    members, kind = choose_members(turn.state, job)
    if not members:
        able = len(candidates(turn.state, job)) + len(last_resorts(turn.state, job))
        need = (
            job.spec.nodes_min
            if job.spec.reform
            else max(len(job.generation.members), job.spec.nodes_min)
        )
        nodes = "1 node" if able == 1 else f"{able} nodes"
        kept = _why_ineligible(turn.state, job)
        kept += _unstopped(job)
        wait_for_capacity(turn, job, f"{nodes} can take ranks, it needs {need}{kept}")
        return
    if job.generation.unreachable:
        ask_again(turn, job, members)
        return
    _begin_generation(turn, job, members, kind)


def _why_put_off(turn: Reconciliation, job: JobRecord) -> str:
    """Return why no plan is made now, whatever nodes there are; empty where one is."""
    if paused := turn.paused(job.name):
        return f"automation is paused: {paused}; to go on: everstep resume {job.name}"
    held = lost_jobs.why_held(turn.state, job, turn.now_ns)
    timer, until_ns = f"{TimerKind.RETURNS}/{job.id}", turn.state.returns_until_ns
    if held and turn.state.timers.get(timer) != until_ns:
        turn.set_timer(timer, until_ns - turn.now_ns)
    return held


def _back_off(turn: Reconciliation, job: JobRecord) -> None:
    """Have a job wait for its next attempt, and say why, and what to do about that."""
    if job.state is not JobState.BACKING_OFF:
        move_job(turn, job, JobEvent.BACKED_OFF, backoff.sentence(turn, job))


def _unstopped(job: JobRecord) -> str:
    """Return whose old processes are waited for, as the end of a sentence."""
    left = [name for name, one in job.launchers.items() if one.stale_generation]
    return f"; {orders.who_have(left)} still to stop an older generation" if left else ""


def _begin_generation(
    turn: Reconciliation, job: JobRecord, members: list[str], kind: PlanKind
) -> None:
    known = job.recovery.plan
    job.recovery.plan = (
        PlanKind.WAITED if known is PlanKind.WAITED and kind is not PlanKind.REFORM else kind
    )
    restore_point.note_crash(turn, job)
    turn.drop_timer(f"{TimerKind.BACKOFF}/{job.id}")
    seen = turn.state.generations_seen.get(job.name, SeenGeneration(0)).number
    # Generation numbers that a node may have used on its own, cut off, are not used again.
    newest = max(job.generation.number + job.generation.own_restarts, seen)
    newest = max(newest, lost_jobs.newest_number(turn.state, job))
    turn.state.named_ranks.pop(job.name, None)
    devices.mark_sharing_jobs(turn, job, {*job.generation.members}.symmetric_difference(members))
    told = f"on {', '.join(members)}{_taken_last(turn.state, job, members)}"
    for name in members:
        if turn.state.nodes[name].spare_check.waits:
            turn.mark_node(name)  # it is no spare any more
    job.generation = Generation(newest + 1, Members(members))
    move_job(turn, job, JobEvent.PLANNED, f"generation {job.generation.number} {told}")


def _taken_last(state: State, job: JobRecord, members: Sequence[str]) -> str:
    """Return which new members were its last resorts, as the end of a sentence."""
    seats, flapping = frozenset(job.generation.members), frozenset(state.index.flapping)
    last = [name for name in members if name in flapping and name not in seats]
    if not last:
        return ""
    more = f" and {len(last) - _NAMED_MAX} more" if len(last) > _NAMED_MAX else ""
    whose = "its agent ends" if len(last) == 1 else "their agents end"
    stream = "stream" if len(last) == 1 else "streams"
    return (
        f"; no other node was left than {', '.join(last[:_NAMED_MAX])}{more}, and the {stream} of "
        f"{whose} again and again"
    )


def _given_up(state: State, job: JobRecord) -> str:
    incident = open_incident(state, job)
    if incident is not None and (why := backoff.never_reached(job)):
        return why
    if incident is None or job.recovery.restarts_without_progress < job.spec.restarts_max:
        return ""
    last = job.recovery.judgements[-1].sentence if job.recovery.judgements else incident.message
    restarts = "1 restart" if job.spec.restarts_max == 1 else f"{job.spec.restarts_max} restarts"
    sentence = f"given up after {restarts} without a new step; the last fault: {last}"
    return sentence + blame.tried_summary(job)


def still_held(job: JobRecord, node: str) -> bool:
    """Return whether a node still has something of the generation that the next one follows.

    Processes that the kernel does not let go, or memory of a device: the next ranks there may need
    what is taken.
    """
    launcher = job.launchers.get(node)
    return launcher is not None and 0 < job.generation.number == launcher.holds_generation


# How long a job waits before it asks again for a state that nobody could give back.
_RETRY_NS = 15_000_000_000
# So often it asks before that time, because its plan or the nodes with its copies have changed.
ASKS_MAX = 16

# Number of nodes that a sentence names.
_NAMED_MAX = 3


def wait_for_capacity(turn: Reconciliation, job: JobRecord, reason: str) -> None:
    """Have a job wait for nodes, or for automation to go on, and say for what."""
    job.recovery.plan = PlanKind.WAITED
    if job.state is not JobState.FORMING:
        move_job(turn, job, JobEvent.NO_CAPACITY, reason)
    elif reason != job.reason:
        job.reason = reason
        orders.hold_all(turn, job)


def wait_for_state(turn: Reconciliation, job: JobRecord, lost: str) -> None:
    """Have a job wait until its state can be reached; asked again, it makes no new generation."""
    if lost != job.generation.unreachable:
        turn.announce(job.name, "StateUnreachable", f"{job.name}: {lost}")
    job.generation.unreachable = lost
    job.recovery.plan = PlanKind.WAITED
    reason = f"its state cannot be restored: {lost}; {_next_step(turn.state, job)}"
    move_job(turn, job, JobEvent.STATE_UNREACHABLE, reason)
    _note_asked(turn, job)


def may_ask_again(state: State, job: JobRecord, members: list[str]) -> bool:
    """Return whether the answer may be another one by now, or it is time to ask anyway.

    What changes again and again is asked about a few times, and then when it is time.
    """
    due = f"{TimerKind.RETRY}/{job.id}" not in state.timers
    if due or not members or job.ending.wanted or job.name in state.paused:
        return True
    same = members == job.generation.members
    asked = same and _connected_holders(state, job) == job.generation.asked_of
    return not asked and job.generation.asks < ASKS_MAX


def ask_again(turn: Reconciliation, job: JobRecord, members: list[str]) -> None:
    """Ask again for the state of a generation that was planned and never started."""
    due = f"{TimerKind.RETRY}/{job.id}" not in turn.state.timers
    job.generation.asks = 1 if due else job.generation.asks + 1
    job.generation.members = Members(members)
    job.generation.stopped = {}
    if job.state is not JobState.WAITING_STATE:
        wait_for_state(turn, job, job.generation.unreachable)
    _note_asked(turn, job)
    turn.order(restore_point.choose_step(turn.state, job))


def _note_asked(turn: Reconciliation, job: JobRecord) -> None:
    job.generation.asked_of = _connected_holders(turn.state, job)
    turn.set_timer(f"{TimerKind.RETRY}/{job.id}", _RETRY_NS)


def _connected_holders(state: State, job: JobRecord) -> list[str]:
    return [name for name in job.lineage.holders if state.nodes[name].liveness.connected]


def _next_step(state: State, job: JobRecord) -> str:
    anew = (
        "start it"
        if job.lineage.continues and not job.lineage.started
        else "end it and start it again"
    )
    fresh = f"to start from scratch, {anew} with --fresh"
    away = [name for name in job.lineage.holders if not state.nodes[name].liveness.connected]
    if not away:
        return f"no node that had some of it is away; {fresh}"
    shown = ", ".join(away[:_NAMED_MAX]) + (" …" if len(away) > _NAMED_MAX else "")
    return f"it goes on when what {shown} had can be reached: bring back the node, or {fresh}"


TIMERS: Timers = {
    TimerKind.FORMING: wait_over,
    TimerKind.RETRY: retry_due,
}
