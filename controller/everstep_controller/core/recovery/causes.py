"""Causes of faults: the evidence is judged, and a table gives the remedy with a sentence why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType

from everstep_common.failures.classification import CRASH, Side, side
from everstep_controller.core.model.incident import (
    AskedRollback,
    Death,
    Judgement,
    Remedy,
    WaitedFor,
)


class History(Enum):
    """Earlier deaths like this one, as far as a remedy depends on them."""

    NEW = auto()
    # Several ranks show it, and the job has not made a step yet.
    FROM_THE_START = auto()
    # An earlier generation, too, ended itself with this code before it had made a step.
    NEVER_STARTED = auto()
    # An earlier generation died of the same, at the same step and on the same node …
    SAME_STEP = auto()
    # … or on another one.
    SAME_STEP_ELSEWHERE = auto()
    # Ranks on several nodes show it, at once and at the same step …
    AT_ONCE_ON_SEVERAL_NODES = auto()
    # … or one after the other, or at other steps.
    ON_SEVERAL_NODES = auto()
    # An earlier generation asked to go back before the same step, with the same data.
    ROLLED_BACK = auto()
    # Another death without an explanation was on this node not long ago.
    SAME_NODE = auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """Remedy for one case, and the sentence why."""

    remedy: Remedy
    reason: str


_AGAIN = Rule(
    Remedy.STOP,
    "{what}, the same as generation {before} {where}: the script or its data is at fault; correct "
    "it and start the job again",
)

_UNFIT_AGAIN = Rule(
    Remedy.STOP,
    "{what}, the same as generation {before} {where}: ranks call operations that do not fit "
    "together, which no node makes them do{departed}; correct the script and start the job again",
)

_AGAIN_ROLLED_BACK = Rule(
    Remedy.STOP,
    "{what}, the same as generation {before}, from which it went back: going back does not help; "
    "correct the script, its data or its rates, and start the job again",
)

# A node on which something is amiss may be why it came again there.
_NOT_CLEAN = Rule(
    Remedy.REPLACE,
    "{what}, the same as generation {before} {where}, but something is amiss on {node} "
    "({amiss}): it is replaced and checked first",
)

_NODES_WORD = Rule(Remedy.REPLACE, "{what}: {node} is at fault by its own word{finding}")

_NO_MEMORY = Rule(
    Remedy.REPLACE,
    "{what}: memory ran out there before, so {node} is replaced and checked",
)

RULES: Mapping[tuple[Side, History], Rule] = MappingProxyType(
    {
        (Side.SCRIPT, History.FROM_THE_START): Rule(
            Remedy.STOP,
            "{what}, and {others}: it cannot start anywhere; correct the command or what is "
            "installed, and start the job again",
        ),
        (Side.SCRIPT, History.SAME_STEP): _AGAIN,
        (Side.SCRIPT, History.SAME_STEP_ELSEWHERE): _AGAIN,
        (Side.UNFIT, History.SAME_STEP): _UNFIT_AGAIN,
        (Side.UNFIT, History.SAME_STEP_ELSEWHERE): _UNFIT_AGAIN,
        (Side.SCRIPT, History.ROLLED_BACK): _AGAIN_ROLLED_BACK,
        (Side.UNKNOWN, History.SAME_STEP_ELSEWHERE): _AGAIN,
        (Side.UNKNOWN, History.NEVER_STARTED): Rule(
            Remedy.STOP,
            "{what}, the same as generation {before} {where}: the script ends itself; see its "
            "output, correct the command or the script, and start the job again",
        ),
        (Side.UNKNOWN, History.AT_ONCE_ON_SEVERAL_NODES): Rule(
            Remedy.RESTART,
            "{what}, and so did ranks on {elsewhere} {where}: the program, and no node is at "
            "fault; the job ends if it comes again there",
        ),
        (Side.UNKNOWN, History.SAME_STEP): Rule(
            Remedy.REPLACE,
            "{what}, the same as generation {before} {where}: {node} is replaced and checked",
        ),
        (Side.UNKNOWN, History.SAME_NODE): Rule(
            Remedy.REPLACE,
            "{what}: the second death without an explanation there, so {node} is replaced and "
            "checked",
        ),
        # No step of the program takes the memory.
        (Side.HOST, History.SAME_STEP): _NO_MEMORY,
        (Side.HOST, History.SAME_NODE): _NO_MEMORY,
    }
    | {(Side.NODE, history): _NODES_WORD for history in History}
)

# A launcher says how its ranks died, and says what it likes: by that alone no node is taken from
# other users whose jobs step there.
_SHARED = Rule(
    Remedy.RESTART,
    "{what}, and not for the first time there; {node} is not replaced for that, because job "
    "{neighbour} of another user steps on it: if the node is at fault, 'everstep drain {node}'",
)

# On the only node of a job nothing can show that it does not come elsewhere.
_ALONE = Rule(
    Remedy.RESTART,
    "{what}, the same as generation {before} {where}: the script or {node}, and only another node "
    "would tell; the job moves there if it has a launcher on one",
)

# A pair that is not in the table is tried once more.
OTHERWISE: Mapping[Side, str] = MappingProxyType(
    {
        Side.SCRIPT: "{what}: the script's own fault if it comes again {where}",
        Side.NODE: "{what}",
        Side.HOST: "{what}: {node} had no memory left; once more there, and it is replaced",
        Side.TRANSIENT: "{what}: cause unknown; treated as transient",
        Side.CONSEQUENCE: "{what}: which rank went first is not known",
        Side.WAITED: "{what}: it gave up waiting for other ranks; who did not come is not known",
        Side.UNFIT: "{what}: ranks called operations that do not fit together{departed}; the "
        "script's own fault if it comes again {where}",
        Side.UNKNOWN: "{what}: the script or {node}, only a repetition tells",
    }
)


# A rank that ends well while others still call collectives was not lost by a network.
_UNEVEN = Rule(
    Remedy.RESTART,
    "{what}, when all ranks on {finished} had ended well: data of unequal length does that",
)

# Sides by which a node may be at fault.
_OF_NODES = frozenset({Side.NODE, Side.HOST, Side.UNKNOWN})
# Histories in which it is clear that none is.
_OF_NO_NODE = frozenset({History.AT_ONCE_ON_SEVERAL_NODES})

# Sides of which nothing shows that the program or a node has to do with them, however often they
# come: ranks that lost one another, where none died before, lost the network between them.
OUTSIDE = frozenset({Side.TRANSIENT, Side.CONSEQUENCE})

# Kinds of failure that no other attempt can change, when the ranks fail before their first step.
_NEVER_STARTS = frozenset({"import", "usage"})


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A finding of a node's hardware around the time of the fault."""

    node: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of how a generation ended by a fault."""

    generation: int
    now_ns: int
    # Those that explain most first.
    deaths: tuple[Death, ...] = ()
    faults: tuple[NodeFault, ...] = ()
    # What was done to the job from outside: a node was lost, an operator's word; or empty.
    outside: str = ""
    past: tuple[Judgement, ...] = ()
    # Of these, the generations whose end a finding, a lost node or a word from outside explains.
    explained: frozenset[int] = frozenset()
    # What its ranks called bad, where that ended it.
    rollback: AskedRollback | None = None
    # Of each member that is not known to be clean, what is amiss there.
    amiss: Mapping[str, str] = field(default_factory=dict)
    # The nodes that took part, and those of them whose ranks had all ended well.
    members: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    # Unexplained deaths on each node before this one, of all jobs, within the window.
    strikes: Mapping[str, int] = field(default_factory=dict)
    world_size: int = 0
    # Of each node on which a job of another user steps, that job.
    neighbours: Mapping[str, str] = field(default_factory=dict)
    # The job has not made one step in its life.
    fresh: bool = False
    # The ranks for which others waited until they gave up, or that called what did not fit, if
    # known; the latter also of a generation before.
    waited_for: WaitedFor | None = None


def judge(evidence: Evidence) -> Judgement:
    """Return what is to be done about a fault."""
    if evidence.rollback is not None:
        return _judge_rollback(evidence, evidence.rollback)
    if evidence.outside or not evidence.deaths:
        sentence = evidence.outside or "no rank told how it ended"
        return Judgement(
            generation=evidence.generation,
            at_ns=evidence.now_ns,
            remedy=Remedy.RESTART,
            sentence=sentence,
        )
    culprit = _culprit(evidence)
    history = history_of(evidence)
    whose, fault = _whose(evidence, culprit, history)
    otherwise = Rule(Remedy.RESTART, OTHERWISE[whose] if culprit.exit.kind else "{what}")
    if whose is Side.WAITED and evidence.waited_for is not None:
        otherwise = Rule(Remedy.RESTART, "{waited_for}")
    uneven = whose is Side.CONSEQUENCE and bool(evidence.finished)
    if uneven:
        otherwise = _UNEVEN
    rule = RULES.get((whose, history), otherwise)
    node = fault.node if fault else culprit.node
    if rule is _AGAIN and history is History.SAME_STEP and node in evidence.amiss:
        rule = _AGAIN if _was_checked_for(evidence, culprit) else _NOT_CLEAN
    if rule.remedy is Remedy.REPLACE and not fault:
        rule = _as_is_possible(evidence, rule, history, node)
    return Judgement(
        generation=evidence.generation,
        at_ns=evidence.now_ns,
        remedy=rule.remedy,
        sentence=rule.reason.format(
            what=culprit.sentence(),
            node=node,
            before=_before(evidence, culprit),
            where=_where(culprit.exit.step),
            others=_others(evidence, culprit),
            elsewhere=", ".join(one for one in _nodes_of(evidence, culprit) if one != node),
            finding=f" ({fault.message})" if fault else "",
            neighbour=evidence.neighbours.get(node, ""),
            amiss=evidence.amiss.get(node, ""),
            waited_for=sentence_of_wait(evidence.waited_for, culprit),
            departed=_departed(evidence.waited_for),
            finished=", ".join(evidence.finished),
        ),
        evidence=_shown(evidence),
        node=node if _may_be_node(whose, history) or rule is _NOT_CLEAN else "",
        signature=culprit.signature,
        step=culprit.exit.step,
        nodes=_nodes_of(evidence, culprit),
        explained=fault is not None,
        # Without a kind, nothing was classified: by an older launcher.
        outside=whose in OUTSIDE and bool(culprit.exit.kind) and not uneven,
    )


def _as_is_possible(evidence: Evidence, rule: Rule, history: History, node: str) -> Rule:
    """Return the rule for a node that is to be replaced, or why it cannot be blamed."""
    if node in evidence.neighbours:
        return _SHARED
    alone = len(evidence.members) == 1 and history is History.SAME_STEP
    return _ALONE if alone and rule is not _NOT_CLEAN else rule


def _may_be_node(whose: Side, history: History) -> bool:
    return whose in _OF_NODES and (whose is Side.NODE or history not in _OF_NO_NODE)


def sentence_of_wait(waited_for: WaitedFor | None, gave_up: Death) -> str:
    """Return whom a rank waited for, and how it gave up; "" where the first is not known."""
    if waited_for is None:
        return ""
    return f"{waited_for.sentence.rstrip('.')}; {gave_up.sentence()}, for it gave up waiting"


def sentence_of_unfit(departed: WaitedFor, died: Death) -> str:
    """Return what a rank died of that got data which did not fit, and who had called it."""
    otherwise = OTHERWISE[Side.UNFIT]
    where = _where(died.exit.step)
    return otherwise.format(what=died.sentence(), departed=_departed(departed), where=where)


def _departed(known: WaitedFor | None) -> str:
    return f" (generation {known.generation}: {known.sentence.rstrip('.')})" if known else ""


def _judge_rollback(evidence: Evidence, asked: AskedRollback) -> Judgement:
    """Return what is to be done when ranks call a state bad: once they may go back for it.

    All ranks of a synchronous job see the same bad loss, so any member may have made it.
    """
    same = (asked.signature, asked.step)
    unexplained = [one for one in evidence.past if one.generation not in evidence.explained]
    earlier = next(
        (one for one in reversed(unexplained) if (one.signature, one.step) == same), None
    )
    sentence, remedy = asked.sentence, Remedy.RESTART
    if earlier is not None and not evidence.faults:
        amiss = [name for name in evidence.members if name in evidence.amiss]
        if not amiss or not {*earlier.nodes}.issuperset(evidence.members):
            rule = RULES[(Side.SCRIPT, History.ROLLED_BACK)]
            remedy = rule.remedy
            sentence = rule.reason.format(what=sentence, before=earlier.generation)
        else:
            sentence = (
                f"{sentence}, again; something is amiss on {amiss[0]}: {evidence.amiss[amiss[0]]}"
            )
    return Judgement(
        generation=evidence.generation,
        at_ns=evidence.now_ns,
        remedy=remedy,
        sentence=sentence,
        evidence=_shown(evidence),
        signature=asked.signature,
        step=asked.step,
        nodes=evidence.members,
        explained=bool(evidence.faults),
    )


def _nodes_of(evidence: Evidence, culprit: Death) -> tuple[str, ...]:
    alike = [death.node for death in evidence.deaths if death.signature == culprit.signature]
    return tuple(dict.fromkeys(alike))


def counts_against_node(evidence: Evidence, judgement: Judgement) -> bool:
    """Return whether this death is one of those that only a repetition on the node explains."""
    if not evidence.deaths or judgement.remedy is not Remedy.RESTART or not judgement.node:
        return False
    if evidence.deaths[0].ended_before_any_step:
        return False
    return history_of(evidence) is History.NEW


def _culprit(evidence: Evidence) -> Death:
    """Return the death that explains most: of those that follow, one over data that does not fit.

    But after a rank gave up waiting, that is only what is left of its operation.
    """
    first = evidence.deaths[0]
    if first.explains or any(death.waited_in_vain for death in evidence.deaths):
        return first
    unfit = (death for death in evidence.deaths if side(death.exit.kind) is Side.UNFIT)
    return next(unfit, first)


def history_of(evidence: Evidence) -> History:
    """Return what else is known of deaths like the one that explains this fault."""
    culprit = _culprit(evidence)
    alike = [death for death in evidence.deaths if death.signature == culprit.signature]
    nodes = {death.node for death in alike}
    if _cannot_start(evidence, culprit, len(alike)):
        return History.FROM_THE_START
    if earlier := _same_before(evidence, culprit):
        if culprit.ended_before_any_step:
            return History.NEVER_STARTED
        elsewhere = len(nodes) > 1 or not {*_blamed(earlier), culprit.node} <= {culprit.node}
        return History.SAME_STEP_ELSEWHERE if elsewhere else History.SAME_STEP
    if len({death.node for death in alike if death.exit.step == culprit.exit.step}) > 1:
        return History.AT_ONCE_ON_SEVERAL_NODES
    if len(nodes) > 1 or _elsewhere_before(evidence, culprit):
        return History.ON_SEVERAL_NODES
    struck = evidence.strikes.get(culprit.node) and not culprit.ended_before_any_step
    return History.SAME_NODE if struck else History.NEW


def _cannot_start(evidence: Evidence, culprit: Death, ranks: int) -> bool:
    enough = ranks > 1 or evidence.world_size == 1
    return culprit.exit.kind in _NEVER_STARTS and evidence.fresh and enough


def _same_before(evidence: Evidence, culprit: Death) -> Judgement | None:
    """Return the newest generation that died of the same at the same step.

    Without a step, only an exception, or a script that ends itself before its first, is evidence
    enough that it was the same place.
    """
    nowhere = culprit.exit.step is None and not culprit.ended_before_any_step
    if nowhere and not culprit.exit.exception and not culprit.got_unfit_data:
        return None
    # Nothing else explains that ranks called what does not fit.
    explained = frozenset() if culprit.got_unfit_data else evidence.explained
    known = (one for one in reversed(evidence.past) if one.generation not in explained)
    return next((one for one in known if _is_same(one, culprit)), None)


def _was_checked_for(evidence: Evidence, culprit: Death) -> bool:
    """Return whether a node has been replaced and checked because of such a death already."""
    return any(one.remedy is Remedy.REPLACE and _is_same(one, culprit) for one in evidence.past)


def _is_same(earlier: Judgement, culprit: Death) -> bool:
    """Return whether a generation died of the same at the same step.

    A signal that follows within milliseconds of a step ends a rank before or after it has told it.
    A generation that made no step, though one before did, goes on where that one ended.
    """
    if earlier.signature != culprit.signature:
        return False
    now, before = culprit.exit.step, earlier.step
    if now == before or not (culprit.got_unfit_data or culprit.exit.kind == CRASH):
        return now == before
    if now is None:
        return culprit.got_unfit_data
    return before is not None and abs(now - before) <= 1


def _blamed(earlier: Judgement) -> tuple[str, ...]:
    """Return where it happened; an older version has only noted the node that it blamed."""
    return earlier.nodes or ((earlier.node,) if earlier.node else ())


def _elsewhere_before(evidence: Evidence, culprit: Death) -> bool:
    return any(
        one.signature == culprit.signature and any(n != culprit.node for n in _blamed(one))
        for one in evidence.past
    )


def _whose(evidence: Evidence, culprit: Death, history: History) -> tuple[Side, NodeFault | None]:
    """Return whose fault it is, and the finding that says so, if one does.

    A node's own word weighs more than how a rank died, but for a script that can start nowhere, and
    for ranks that call what does not fit: no fault of a node makes them.
    """
    whose = side(culprit.exit.kind) if culprit.exit.kind else Side.TRANSIENT
    if whose is Side.UNFIT and any(death.waited_in_vain for death in evidence.deaths):
        whose = Side.CONSEQUENCE
    nowhere = history is History.FROM_THE_START or culprit.exit.kind in _NEVER_STARTS
    if whose is Side.UNFIT or (whose is Side.SCRIPT and nowhere):
        return whose, None
    fault = _fault_of(evidence, culprit)
    return (Side.NODE, fault) if fault else (whose, None)


def _fault_of(evidence: Evidence, culprit: Death) -> NodeFault | None:
    if culprit.explains:
        return next((fault for fault in evidence.faults if fault.node == culprit.node), None)
    # All that is known is that the ranks lost one another: a single faulty node explains it.
    single = len({fault.node for fault in evidence.faults}) == 1
    return evidence.faults[0] if single else None


def _before(evidence: Evidence, culprit: Death) -> int:
    earlier = _same_before(evidence, culprit)
    return earlier.generation if earlier else 0


def _where(step: int | None) -> str:
    return "before any step" if step is None else f"after step {step}"


def _others(evidence: Evidence, culprit: Death) -> str:
    alike = sum(death.signature == culprit.signature for death in evidence.deaths) - 1
    if alike < 1:
        return "there is no other rank"
    return "1 more rank says the same" if alike == 1 else f"{alike} more ranks say the same"


def _shown(evidence: Evidence) -> tuple[str, ...]:
    """Return the evidence in words, a few lines of it."""
    deaths = evidence.deaths[:3]
    return tuple(
        [f"{death.exit.kind or 'unclassified'}: {death.sentence()}" for death in deaths]
        + [f"finding on {fault.node}: {fault.message}" for fault in evidence.faults[:3]]
        + [f"earlier: {one.sentence}" for one in evidence.past[-2:]]
    )
