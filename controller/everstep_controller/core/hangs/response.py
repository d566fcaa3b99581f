"""Response to a hang: a table says what is done about each class of it, and when.

Who holds a job back was judged outside, from what its ranks and launchers tell. That is a job's own
word: by it the job is restarted or ended. A node is replaced and checked only for what its agent
finds, or where hangs come again on it and not elsewhere, and no other user's job steps there. It is
decided when a look at the ranks has found the same for long enough, never by a clock alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from everstep_common.hangs.reports.verdict import HangClass
from everstep_controller.core import events
from everstep_controller.core.events import HangJudged
from everstep_controller.core.hangs import stillness
from everstep_controller.core.jobs import incidents
from everstep_controller.core.jobs.lifecycle import BEGINNING
from everstep_controller.core.model.hang import (
    HANGS_MAX,
    NODE_HANGS_MAX,
    PROVED,
    STAND_PLACES_MAX,
    NodeHang,
    PastHang,
    Proof,
    SeenHang,
    usual_stand_ns,
)
from everstep_controller.core.model.incident import Judgement, Remedy
from everstep_controller.core.model.job import Cause, JobFault, JobRecord, JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.recovery import bearing, blame
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

_S = 1_000_000_000


class Manner(Enum):
    """Manner in which a job is helped that stands still."""

    # Restarted as soon as it is seen that the culprit cannot go on by itself.
    AT_ONCE = auto()
    # Restarted after a while in which it might have gone on.
    AFTER_PATIENCE = auto()
    # The same, and ended where it comes again.
    ONCE_MORE = auto()
    # Ended, when two looks in a row say the same.
    END = auto()
    # Told, and waited for: neither another start nor another node makes storage answer.
    TELL = auto()
    # Nobody waits for anybody: only steps tell.
    NOTHING = auto()


MANNERS: Mapping[HangClass, Manner] = MappingProxyType(
    {
        HangClass.DEAD: Manner.AT_ONCE,
        HangClass.FROZEN: Manner.AT_ONCE,
        HangClass.GIL_HELD: Manner.AT_ONCE,
        HangClass.STORAGE: Manner.TELL,
        HangClass.DESYNC: Manner.END,
        HangClass.KNOWN_SOFTWARE: Manner.ONCE_MORE,
        HangClass.CPU_SIDE: Manner.AFTER_PATIENCE,
        HangClass.GPU_SIDE: Manner.AFTER_PATIENCE,
        HangClass.SILENT: Manner.AFTER_PATIENCE,
        HangClass.FABRIC: Manner.AFTER_PATIENCE,
        HangClass.UNKNOWN: Manner.AFTER_PATIENCE,
        HangClass.NO_WAIT: Manner.NOTHING,
    }
)

# So many looks in a row end a job.
_LOOKS_TO_END = 2
# Where it was restarted for what cannot go on by itself, and stands still there again, and nobody
# has said how long to wait: as `core.hang_patience_s` is shipped.
_AGAIN_NS = 120 * _S
# No code that gives the GIL back keeps it for as long, unless it builds or writes something; an
# endless loop in C does.
_HELD_NS = 15 * _S
# Where a judge failed: 600 s, torch's timeout of collectives, as `core.stall_timeout_s` is shipped.
_UNJUDGED_TIMES = 5
# How soon a job is looked at again that would be restarted now, were automation not paused.
_ASKED_AGAIN_NS = 10 * _S
# Steps are told by all nodes, and the last of them may be told late.
_SAME_STEP = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HangCase:
    """Everything by which it is decided what is done about a hang."""

    job: str
    name: str = ""
    now_ns: int
    # Since when no rank has moved, as far as is known; and the last step that all have completed.
    still_since_ns: int
    step: int | None
    seen: SeenHang
    # Since when the culprits hold the GIL, as far as it was seen; 0: that is not known.
    held_since_ns: int = 0
    # It has made no step since it was started: it may load, compile, or hang.
    begins: bool = False
    # On how many nodes the job runs: what comes again on its only node comes again nowhere else.
    nodes: int = 2
    # How long ranks may stand still, 0: for ever; and for how long they do where they are now.
    patience_ns: int
    usual_ns: int = 0
    # Hangs that count: those for which this job was restarted, and those on the culprits' node.
    past: tuple[PastHang, ...] = ()
    of_node: tuple[NodeHang, ...] = ()
    # The finding by which the culprits' node is unfit, and the job of another user that steps
    # there; "" where there is none.
    finding: str = ""
    neighbour: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """What is done about a hang, from when on, and why."""

    # None: nothing is.
    remedy: Remedy | None
    due_ns: int
    # Of why it is done so, the end of a sentence.
    why: str
    # The node that is replaced; "" where none is.
    node: str = ""


def respond(case: HangCase) -> Response:
    """Return what is done about a hang."""
    manner = _manner(case)
    if manner in _LEFT_ALONE:
        return Response(None, 0, _LEFT_ALONE[manner])
    if manner is Manner.END:
        # Until a second look has found the same there is nothing to be decided.
        ready = case.seen.looks >= _LOOKS_TO_END
        return Response(Remedy.STOP, case.now_ns if ready else case.now_ns + 1, _PROGRAM)
    wait_ns = _wait_ns(case, manner)
    if wait_ns is None:
        return Response(None, 0, _why_left_alone(case))
    due_ns = case.still_since_ns + wait_ns
    if manner is not Manner.AT_ONCE and not case.seen.unmoved_ns:
        due_ns = max(due_ns, case.now_ns + 1)  # until a second look: one may see ranks on their way
    if manner is Manner.ONCE_MORE:
        if any(one.kind is case.seen.verdict.kind for one in case.past):
            return Response(Remedy.STOP, due_ns, "it was restarted for the same before")
        return Response(Remedy.RESTART, due_ns, "no node is at fault")
    if (before := _same_rank_elsewhere(case)) is not None:
        rank, node = before
        return Response(
            Remedy.STOP,
            due_ns,
            f"rank {rank} held it back in the same way on {node} before it was moved: {_PROGRAM}",
        )
    return _restart(case, due_ns)


_LEFT_ALONE: Mapping[Manner, str] = MappingProxyType(
    {
        Manner.NOTHING: "",
        Manner.TELL: "storage does not answer, so no restart and no other node helps: see to the "
        "file system; the job goes on by itself when that answers",
    }
)


def _why_left_alone(case: HangCase) -> str:
    if case.seen.pause:
        return f"{case.seen.pause}: that is no step, and nothing is done meanwhile"
    if case.begins:
        return (
            "it has made no step since it was started, and may still load or compile: to start it "
            f"anew: everstep job {case.name} restart --reason …"
        )
    if case.seen.failure:
        return "its judge failed, and core.stall_restart_timeout_s is 0: people decide"
    return "core.hang_patience_s is 0: people decide"


_PROGRAM = "the program is at fault; correct it and start the job again"


def _manner(case: HangCase) -> Manner:
    """Return in which manner a job is helped; without a sure verdict it is waited for."""
    seen = case.seen
    manner = MANNERS[seen.verdict.kind]
    if manner in (*_LEFT_ALONE, Manner.ONCE_MORE):
        return manner
    if manner is Manner.END and seen.is_sure:
        return manner
    if case.finding and manner is not Manner.END:
        return Manner.AT_ONCE
    stuck = manner is Manner.AT_ONCE and seen.stuck
    return Manner.AT_ONCE if stuck else Manner.AFTER_PATIENCE


def _wait_ns(case: HangCase, manner: Manner) -> int | None:
    """Return how long ranks may stand still, twice as long for each restart at the same step.

    None: for as long as they do.
    """
    again = sum(_is_there(case.step, one.step) for one in case.past)
    held = case.seen.verdict.kind is HangClass.GIL_HELD and case.seen.is_sure
    if manner is Manner.AT_ONCE:
        # Who loads a library before the first step may hold the GIL all the while.
        first_ns = (case.patience_ns or _AGAIN_NS) if held and case.begins else 0
        return (case.patience_ns or _AGAIN_NS) << (again - 1) if again else first_ns
    # Before the first step ranks that load or compile look like ranks that hang.
    if case.seen.pause or not case.patience_ns or case.begins:
        return None
    if held and not again and not case.seen.works:
        # What was done before with the GIL given back says nothing of what is done since.
        before_ns = max(0, case.held_since_ns - case.still_since_ns)
        held_ns = max(_HELD_NS, case.usual_ns) + before_ns
        return min(held_ns, max(case.patience_ns, case.usual_ns))
    return max(case.patience_ns, case.usual_ns) << again


def _is_there(step: int | None, other: int | None) -> bool:
    if step is None or other is None:
        return step is other
    return abs(step - other) <= _SAME_STEP


def _same_rank_elsewhere(case: HangCase) -> tuple[int, str] | None:
    """Return a culprit that held the job back on another node before, in the same way."""
    verdict = case.seen.verdict
    if not case.seen.is_sure or case.finding or Proof.PROGRAM not in PROVED[verdict.kind]:
        return None
    now = {one.rank: one.node for one in verdict.culprits}
    for past in reversed(case.past):
        if past.kind is verdict.kind and not past.explained:
            for rank, node in past.culprits:
                if rank in now and now[rank] != node:
                    return rank, node
    return None


def _restart(case: HangCase, due_ns: int) -> Response:
    """Return with or without which node a job is restarted."""
    node = case.seen.node
    if node and case.finding:
        return Response(Remedy.REPLACE, due_ns, f"{node} is unfit: {case.finding}", node)
    if node and _is_the_node(case, node):
        if case.neighbour:
            return Response(
                Remedy.RESTART,
                due_ns,
                f"not for the first time on {node}, which is not replaced for that, because job "
                f"{case.neighbour} of another user steps on it: if the node is at fault, "
                f"'everstep drain {node}'",
            )
        return Response(
            Remedy.REPLACE,
            due_ns,
            f"other ranks have held jobs back on {node}: it is replaced and checked",
            node,
        )
    return Response(Remedy.RESTART, due_ns, _UNPROVED.get(case.seen.verdict.kind, _NOBODY))


_NOBODY = "nothing shows that a node is at fault"

# Why nobody is blamed, however often it comes.
_UNPROVED: Mapping[HangClass, str] = MappingProxyType(
    {
        HangClass.FROZEN: "what stops a process is neither the program nor the node: see who sends "
        "SIGSTOP, attaches a debugger or freezes its cgroup there",
        HangClass.SILENT: "nobody could ask its rank, so neither the program nor a node is blamed",
    }
)


def _is_the_node(case: HangCase, node: str) -> bool:
    """Return whether hangs come again on a node, with other ranks or jobs, and nowhere else."""
    if Proof.NODE not in PROVED[case.seen.verdict.kind]:
        return False
    of_job = [one for one in case.past if one.proves(Proof.NODE)]
    if any(other != node for one in of_job for _, other in one.culprits):
        return False
    ranks = {one.rank for one in case.seen.verdict.culprits}
    return any(
        one.job != case.job or (case.nodes > 1 and not ranks & {*one.ranks}) for one in case.of_node
    )


# States in which verdicts are taken: a job that stands still, or has made no step yet.
LOOKED_AT = frozenset({JobState.STALLED, *BEGINNING})
# After so long without a step since it was started, ranks are looked at.
BEGINNING_LOOKED_AT_NS = 60 * _S


def due_from_ns(job: JobRecord) -> int | None:
    """Return from when on a job's ranks are looked at; None: not in its state."""
    if job.state is JobState.STALLED:
        return job.hang.found_ns or job.since_ns
    if job.state is JobState.RUNNING:
        return job.hang.found_ns or None  # where that may be usual, and nobody was told
    if job.state not in BEGINNING:
        return None
    return (job.generation.began_ns or job.since_ns) + BEGINNING_LOOKED_AT_NS


# --- the job that hangs --------------------------------------------------------------------------


def hang_judged(turn: Turn, event: HangJudged) -> None:
    """Note who holds a job back that stands still."""
    job = turn.state.jobs.get(event.job)
    if job is None or event.generation != job.generation.number:
        return
    stands_unknown = job.state is JobState.RUNNING and job.hang.found_ns > 0
    if job.state not in LOOKED_AT and not stands_unknown:
        return
    if stands_unknown:
        job.hang.sentence = event.sentence
    elif event.sentence and event.sentence not in job.reason:
        job.reason = f"{job.reason.partition('; ')[0]}; {event.sentence}"
        turn.announce(job.name, "HangJudged", f"{job.name}: {event.sentence}")
    if event.seen is not None:
        job.hang.seen, job.hang.seen_ns = event.seen, turn.now_ns
        if not event.seen.failure:
            places = dict.fromkeys([*job.hang.places, event.seen.place])
            job.hang.places = list(places)[-STAND_PLACES_MAX:]
        job.news.hang_seen = True


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Do about a hang what is due, or say what will be."""
    if job.state not in LOOKED_AT or job.hang.seen is None or not job.news.hang_seen:
        return
    case = _case(turn, job, job.hang.seen)
    response = respond(case)
    job.hang.due_ns = response.due_ns
    if response.remedy is not None and response.due_ns <= turn.now_ns:
        if not turn.paused(job.name):
            _act(turn, job, case, response)
            return
        job.hang.due_ns = turn.now_ns + _ASKED_AGAIN_NS
    _tell_plan(turn, job, _plan(case, response))


def _case(turn: Turn, job: JobRecord, seen: SeenHang) -> HangCase:
    since_ns = turn.now_ns - turn.state.settings.strike_window_ns
    node = turn.state.nodes.get(seen.node)
    told_ns = stillness.since_ns(job)
    # Operations may go on without a step: where nodes do not say so, looks do.
    moved_ns = job.hang.seen_ns - seen.unmoved_ns if told_ns is None else told_ns
    still_since_ns = max(job.hang.onset_ns, moved_ns)
    return HangCase(
        job=job.id,
        name=job.name,
        begins=job.state in BEGINNING,
        now_ns=turn.now_ns,
        still_since_ns=still_since_ns,
        step=job.lineage.last_step,
        seen=seen,
        held_since_ns=job.hang.seen_ns - seen.held_ns if seen.held_ns else 0,
        nodes=len(job.generation.members),
        patience_ns=_patience_ns(turn.state.settings, job, seen),
        usual_ns=usual_stand_ns(job.recovery.usual_stands, seen.place, turn.now_ns),
        past=tuple(one for one in job.recovery.hangs if one.at_ns >= since_ns),
        of_node=tuple(one for one in node.blame.hangs if one.at_ns >= since_ns) if node else (),
        finding=_finding(turn, job, seen, still_since_ns),
        neighbour=blame.neighbour(turn, job, seen.node) if node else "",
    )


def _finding(turn: Turn, job: JobRecord, seen: SeenHang, still_since_ns: int) -> str:
    """Return the finding by which the culprits' node is unfit for them, if one explains the hang.

    With one that is older than the generation it has trained.
    """
    node = turn.state.nodes.get(seen.node)
    if node is None:
        return ""
    fault = bearing.RanksFault(
        began_ns=still_since_ns,
        until_ns=turn.now_ns,
        window_ns=turn.state.settings.evidence_window_ns,
        borne_until_ns=job.generation.began_ns,
        devices=None if seen.devices is None else frozenset(seen.devices),
    )
    return bearing.unfit_by_finding(turn.state, node, job, fault)


def _patience_ns(settings: Settings, job: JobRecord, seen: SeenHang) -> int:
    """Return how long ranks may stand still; 0: for ever.

    Where the judge failed nobody knows whether it is an evaluation: by its nodes' word alone a job
    stands still for as long as torch itself waits in a collective.
    """
    if not seen.failure:
        return settings.hang_patience_ns
    if settings.stall_restart_timeout_ns or not settings.hang_patience_ns:
        return settings.stall_restart_timeout_ns
    return _UNJUDGED_TIMES * settings.stall_timeout_ns if job.hang.by_word else 0


def _plan(case: HangCase, response: Response) -> str:
    """Return what will be done, in words that stay the same while nothing changes."""
    if response.remedy is None:
        return response.why
    if response.due_ns <= case.now_ns:
        return "automation is paused"
    what = "is ended" if response.remedy is Remedy.STOP else "is restarted"
    if MANNERS[case.seen.verdict.kind] is Manner.END and case.seen.is_sure:
        return "it is ended if the next look finds the same"
    waited_s = (response.due_ns - case.still_since_ns) / _S
    again = " (it was restarted for a stall at this step before)" if _is_again(case) else ""
    return f"it {what} when no rank has moved for {waited_s:.0f} s{again}: {response.why}"


def _is_again(case: HangCase) -> bool:
    return any(_is_there(case.step, one.step) for one in case.past)


def _tell_plan(turn: Turn, job: JobRecord, plan: str) -> None:
    if plan and plan != job.hang.plan:
        turn.announce(job.name, "HangPlanned", f"{job.name}: {plan}")
    job.hang.plan = plan


def _act(turn: Reconciliation, job: JobRecord, case: HangCase, response: Response) -> None:
    """Stop the generation that stands still; what follows is judged already."""
    seen = case.seen
    remedy = response.remedy or Remedy.RESTART
    judgement = Judgement(
        generation=job.generation.number,
        at_ns=turn.now_ns,
        remedy=remedy,
        sentence=f"{seen.verdict.sentence}; {response.why}",
        evidence=(f"reports of its ranks: {seen.evidence}",) if seen.evidence else (),
        node=response.node,
        step=case.step,
        nodes=tuple(dict.fromkeys(one.node for one in seen.verdict.culprits)),
        explained=bool(case.finding),
        attempt=Proof.ATTEMPT in PROVED[seen.verdict.kind] and not case.finding,
    )
    job.generation.hang_judgement = judgement
    _remember(turn, job, case)
    message = f"{job.name} stands still, {_still_words(turn, job)}: {seen.verdict.sentence}"
    fault = JobFault(job.hang.onset_ns, Cause.STALLED, response.node, message)
    incidents.judge_fault(turn, job, fault)


def _still_words(turn: Turn, job: JobRecord) -> str:
    """Return for how long it stands still; where nodes do not say it, only its steps tell."""
    told_ns = stillness.since_ns(job)
    what = "no step" if told_ns is None else "no rank has moved"
    return f"{what} for {(turn.now_ns - (told_ns or job.hang.onset_ns)) / _S:.1f} s"


def _remember(turn: Turn, job: JobRecord, case: HangCase) -> None:
    """Remember a hang, of the job and of the node that has all culprits."""
    seen = case.seen
    culprits = seen.verdict.culprits if seen.is_sure else ()
    past = PastHang(
        generation=job.generation.number,
        at_ns=turn.now_ns,
        step=case.step,
        kind=seen.verdict.kind,
        culprits=tuple((one.rank, one.node) for one in culprits),
        explained=bool(case.finding),
    )
    job.recovery.hangs = [*job.recovery.hangs, past][-HANGS_MAX:]
    node = turn.state.nodes.get(seen.node)
    if node is not None and past.proves(Proof.NODE):
        ranks = tuple(one.rank for one in culprits)
        node.blame.hangs = [*node.blame.hangs, NodeHang(turn.now_ns, job.id, ranks)][
            -NODE_HANGS_MAX:
        ]


HANDLERS: Handlers = {
    events.HangJudged: hang_judged,
}
