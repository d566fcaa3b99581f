"""Autonomous restart policy: what an agent decides while the controller is away. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from everstep_agent.jobs.state.plan import Plan
from everstep_common.failures.classification import Side, side
from everstep_common.failures.rank_exits import (
    ended_before_any_step,
    explains,
    sentence_of,
    signature_of,
)
from everstep_common.orders import ShardSource
from everstep_common.reports import BranchStep, RankExited

# How many failures are remembered: more than a node has ranks; others would explain nothing more.
_FAILURES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Autonomy:
    """Facts for autonomous restarts that must outlive the agent's own restart."""

    # Generation of the controller's newest plan.
    planned: int = 0
    # When the agent decided to stop a generation and to begin the next one itself.
    decided_boot_ns: int = 0
    # Newest generation in which a rank called a state bad.
    spoiled: int = 0
    # Newest generation whose launcher was told by its user to end.
    left: int = 0
    failures: tuple[RankExited, ...] = ()

    def with_failure(self, failure: RankExited) -> "Autonomy":
        """Return the facts with one more failure; what a launcher tells again is known."""
        known = {(one.generation, one.rank) for one in self.failures}
        if (failure.generation, failure.rank) in known:
            return self
        return replace(self, failures=(*self.failures, failure)[-_FAILURES_MAX:])

    def cause(self, generation: int) -> RankExited | None:
        """Return the failure that explains most of how a generation ended, the earliest of them."""
        found = [one for one in self.failures if one.generation == generation]
        order = sorted(found, key=lambda one: (not explains(one), one.at_boot_ns, one.rank))
        return order[0] if order else None


class Remedy(Enum):
    """Action of an agent after a failure."""

    HOLD = "hold"
    STOP = "stop"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """Decision on a failure: the action, and the sentence why."""

    remedy: Remedy
    sentence: str


def decide_restart(plan: Plan, autonomy: Autonomy, *, restorable: bool) -> RestartDecision | None:
    """Return what to do about how the newest generation fails; None while no rank has failed.

    ``restorable``: this node alone can give back a state that is as new as any.
    """
    cause = autonomy.cause(plan.generation)
    if cause is None:
        return None
    if why := _foreign(plan, autonomy, cause):
        waits = f"{sentence_of(cause)}; the controller is away: the job waits for it, for {why}"
        return RestartDecision(Remedy.HOLD, waits)
    if _poison(autonomy, cause):
        at = "before any step" if cause.step is None else "at the same step"
        return RestartDecision(
            Remedy.STOP,
            f"{sentence_of(cause)} {at} as before, so it is not started a third time; "
            "the job waits for the controller",
        )
    if not restorable:
        return RestartDecision(
            Remedy.HOLD,
            f"{sentence_of(cause)}; the controller is away: the job waits for it, because "
            "no step is complete in this node's memory",
        )
    return RestartDecision(
        Remedy.RESTART,
        f"restarted here while the controller is away, because {sentence_of(cause)}",
    )


def _foreign(plan: Plan, autonomy: Autonomy, cause: RankExited) -> str:
    """Return why this is not an agent's affair; '' when it is."""
    used = plan.generation - autonomy.planned
    if plan.node_count > 1:
        return "it runs on other nodes too"
    if autonomy.spoiled == plan.generation:
        return "a rank has called its state bad"
    if side(cause.kind) is Side.NODE:
        return "the node itself seems to be at fault"
    if not plan.own_restarts:
        return f"it was restarted {used} times without it" if used else "its plan says so"
    return ""


def _poison(autonomy: Autonomy, cause: RankExited) -> bool:
    """Return whether the program failed before in this very way at this very step."""
    earlier = {one.generation for one in autonomy.failures if one.generation < cause.generation}
    causes = [autonomy.cause(generation) for generation in earlier]
    known = {(signature_of(one), one.step) for one in causes if one is not None}
    poisonous = side(cause.kind) is Side.SCRIPT or ended_before_any_step(cause)
    return poisonous and (signature_of(cause), cause.step) in known


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCopy:
    """A verified copy in this node's memory."""

    generation: int
    rank: int
    step: int
    root_hash: bytes
    size_bytes: int
    layout: bytes


def newest_whole_step(copies: Iterable[HeldCopy], plan: Plan) -> list[HeldCopy]:
    """Return the copies of the newest step of a generation that all its ranks have here.

    Empty when there is none: then what the plan itself restored is what there is.
    """
    steps: dict[int, dict[int, HeldCopy]] = {}
    for copy in copies:
        if copy.generation == plan.generation:
            steps.setdefault(copy.step, {})[copy.rank] = copy
    whole = [step for step, ranks in steps.items() if ranks.keys() >= set(range(plan.world_size))]
    return list(steps[max(whole)].values()) if whole else []


def plan_restart(plan: Plan, copies: Sequence[HeldCopy], node: str, port: int) -> Plan:
    """Return the plan of an agent's own next generation; without copies it restores as before."""
    following = replace(
        plan,
        generation=plan.generation + 1,
        own_restarts=plan.own_restarts - 1,
        renew=False,  # this is no restart that somebody wanted
        master_port=port or plan.master_port,
    )
    if not copies:
        return following
    made, step = copies[0].generation, copies[0].step
    before = (one for one in plan.branch if one.generation < made)
    return replace(
        following,
        branch=(*before, BranchStep(made, step)),
        restore_step=step,
        sources=tuple(_source(copy, node) for copy in copies),
        stored=None,
    )


def _source(copy: HeldCopy, node: str) -> ShardSource:
    return ShardSource(
        node=node,
        generation=copy.generation,
        rank=copy.rank,
        step=copy.step,
        root_hash=copy.root_hash.hex(),
        size_bytes=copy.size_bytes,
        layout=copy.layout.hex(),
        bulk_address="",
    )
