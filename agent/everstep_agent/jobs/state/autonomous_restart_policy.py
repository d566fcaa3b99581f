"""Autonomous restart policy: what an agent decides while the controller is away. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from everstep_agent.jobs.state.plan import Plan
from everstep_agent.vault.snapshots.restore_plan import PlannedSource
from everstep_common.failure_texts import unvarying
from everstep_common.failures import ENDED_ITSELF, Side, side

# As many ranks as a node has; more would explain nothing more.
_FAILURES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """One rank of this node that ended before its generation did."""

    generation: int
    rank: int
    exit_code: int
    signal: int
    kind: str
    exception: str
    at_boot_ns: int
    # The last step that it completed; None when it told of none.
    step: int | None = None

    @property
    def signature(self) -> tuple[str, str, int, int, int | None]:
        """Return what is equal in two failures of the same cause at the same step."""
        said = unvarying(self.kind, self.exception)
        return self.kind, said, self.exit_code, self.signal, self.step

    def sentence(self) -> str:
        """Return what happened, in words."""
        how = f"was killed by signal {self.signal}" if self.signal else f"exited {self.exit_code}"
        return f"rank {self.rank} {how}" + (f" ({self.exception})" if self.exception else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Autonomy:
    """What an agent must remember over its own restart of what it does without the controller."""

    # Generation of the controller's newest plan.
    planned: int = 0
    # When the agent decided to stop a generation and to begin the next one itself.
    decided_boot_ns: int = 0
    # Newest generation in which a rank called a state bad.
    spoiled: int = 0
    # Newest generation whose launcher was told by its user to end.
    left: int = 0
    failures: tuple[RankFailure, ...] = ()

    def with_failure(self, failure: RankFailure) -> "Autonomy":
        """Return the facts with one more failure; what a launcher tells again is known."""
        known = {(one.generation, one.rank) for one in self.failures}
        if (failure.generation, failure.rank) in known:
            return self
        return replace(self, failures=(*self.failures, failure)[-_FAILURES_MAX:])

    def cause(self, generation: int) -> RankFailure | None:
        """Return the failure that explains most of how a generation ended, the earliest of them."""
        found = [one for one in self.failures if one.generation == generation]
        order = sorted(found, key=lambda one: (_follows(one), one.at_boot_ns, one.rank))
        return order[0] if order else None


def _follows(failure: RankFailure) -> bool:
    return side(failure.kind) is Side.CONSEQUENCE


class Remedy(Enum):
    """What an agent does about a failure."""

    HOLD = "hold"
    STOP = "stop"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """What to do, and the sentence why."""

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
        waits = f"{cause.sentence()}; the controller is away: the job waits for it, for {why}"
        return RestartDecision(Remedy.HOLD, waits)
    if _poison(autonomy, cause):
        at = "before any step" if cause.step is None else "at the same step"
        return RestartDecision(
            Remedy.STOP,
            f"{cause.sentence()} {at} as before, so it is not started a third time; "
            "the job waits for the controller",
        )
    if not restorable:
        return RestartDecision(
            Remedy.HOLD,
            f"{cause.sentence()}; the controller is away: the job waits for it, for no step is "
            "whole in this node's memory",
        )
    return RestartDecision(
        Remedy.RESTART,
        f"restarted here while the controller is away, because {cause.sentence()}",
    )


def _foreign(plan: Plan, autonomy: Autonomy, cause: RankFailure) -> str:
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


def _poison(autonomy: Autonomy, cause: RankFailure) -> bool:
    """Return whether the program failed before in this very way at this very step."""
    earlier = {one.generation for one in autonomy.failures if one.generation < cause.generation}
    causes = [autonomy.cause(generation) for generation in earlier]
    known = {one.signature for one in causes if one is not None}
    ended_itself = cause.kind == ENDED_ITSELF and cause.step is None
    return (side(cause.kind) is Side.SCRIPT or ended_itself) and cause.signature in known


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
    return replace(
        following,
        restore=True,
        restore_step=copies[0].step,
        sources=tuple(_source(copy, node) for copy in copies),
        stored=None,
    )


def _source(copy: HeldCopy, node: str) -> PlannedSource:
    return PlannedSource(
        node=node,
        generation=copy.generation,
        rank=copy.rank,
        step=copy.step,
        root_hash=copy.root_hash,
        size_bytes=copy.size_bytes,
        layout=copy.layout,
    )
