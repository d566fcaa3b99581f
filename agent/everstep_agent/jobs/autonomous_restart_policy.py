"""Autonomous restart policy: what an agent decides while the controller is away. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from everstep_common.failure_texts import unvarying
from everstep_common.failures import ENDED_ITSELF, Side, side
from everstep_proto.generated import fleet_pb2

# As many ranks as a node has; more would explain nothing more.
_FAILURES_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
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
    """What is kept over a restart of the agent of what it does in the controller's place."""

    # Generation of the controller's newest plan.
    planned: int = 0
    # Generation that the agent has decided to stop and follow by one of its own, and since when.
    stopping: int = 0
    decided_boot_ns: int = 0
    # Newest generation in which a rank called a state bad.
    spoiled: int = 0
    # Newest generation whose launcher was told by its user to end.
    left: int = 0
    failures: tuple[Failure, ...] = ()

    def with_failure(self, failure: Failure) -> "Autonomy":
        """Return the facts with one more failure; what a launcher tells again is known."""
        known = {(one.generation, one.rank) for one in self.failures}
        if (failure.generation, failure.rank) in known:
            return self
        return replace(self, failures=(*self.failures, failure)[-_FAILURES_MAX:])

    def cause(self, generation: int) -> Failure | None:
        """Return the failure that explains most of how a generation ended, the earliest of them."""
        found = [one for one in self.failures if one.generation == generation]
        order = sorted(found, key=lambda one: (_follows(one), one.at_boot_ns, one.rank))
        return order[0] if order else None


def _follows(failure: Failure) -> bool:
    return side(failure.kind) is Side.CONSEQUENCE


class Remedy(Enum):
    """What an agent does about a failure."""

    HOLD = "hold"
    STOP = "stop"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and the sentence why."""

    remedy: Remedy
    sentence: str


def decide(plan: fleet_pb2.StartGeneration, own: Autonomy, *, restorable: bool) -> Decision | None:
    """Return what to do about how the newest generation fails; None while no rank has failed.

    ``restorable``: this node alone can give back a state that is as new as any.
    """
    cause = own.cause(plan.generation)
    if cause is None:
        return None
    if why := _foreign(plan, own, cause):
        waits = f"{cause.sentence()}; the controller is away: the job waits for it, for {why}"
        return Decision(Remedy.HOLD, waits)
    if _poison(own, cause):
        at = "before any step" if cause.step is None else "at the same step"
        return Decision(
            Remedy.STOP,
            f"{cause.sentence()} {at} as before, so it is not started a third time; "
            "the job waits for the controller",
        )
    if not restorable:
        return Decision(
            Remedy.HOLD,
            f"{cause.sentence()}; the controller is away: the job waits for it, for no step is "
            "whole in this node's memory",
        )
    return Decision(
        Remedy.RESTART,
        f"restarted here while the controller is away, because {cause.sentence()}",
    )


def _foreign(plan: fleet_pb2.StartGeneration, own: Autonomy, cause: Failure) -> str:
    """Return why this is not an agent's affair; '' when it is."""
    used = plan.generation - own.planned
    if plan.node_count > 1:
        return "it runs on other nodes too"
    if own.spoiled == plan.generation:
        return "a rank has called its state bad"
    if side(cause.kind) is Side.NODE:
        return "the node itself seems to be at fault"
    if not plan.own_restarts:
        return f"it was restarted {used} times without it" if used else "its plan says so"
    return ""


def _poison(own: Autonomy, cause: Failure) -> bool:
    """Return whether the program failed before in this very way at this very step."""
    earlier = {one.generation for one in own.failures if one.generation < cause.generation}
    causes = [own.cause(generation) for generation in earlier]
    known = {one.signature for one in causes if one is not None}
    ended_itself = cause.kind == ENDED_ITSELF and cause.step is None
    return (side(cause.kind) is Side.SCRIPT or ended_itself) and cause.signature in known


def newest_whole(
    copies: Iterable[fleet_pb2.Copy], plan: fleet_pb2.StartGeneration
) -> list[fleet_pb2.Copy]:
    """Return the verified copies of the newest step of a generation that all its ranks have here.

    Empty when there is none: then what the plan itself restored is what there is.
    """
    steps: dict[int, dict[int, fleet_pb2.Copy]] = {}
    for copy in copies:
        if copy.generation == plan.generation and not copy.on_disk:
            steps.setdefault(copy.step, {})[copy.rank] = copy
    whole = [step for step, ranks in steps.items() if ranks.keys() >= set(range(plan.world_size))]
    return list(steps[max(whole)].values()) if whole else []


def next_plan(
    plan: fleet_pb2.StartGeneration,
    copies: list[fleet_pb2.Copy],
    node: str,
    port: int,
) -> fleet_pb2.StartGeneration:
    """Return the plan of an agent's own next generation; without copies it restores as before."""
    own = fleet_pb2.StartGeneration()
    own.CopyFrom(plan)
    own.generation += 1
    own.own_restarts -= 1
    own.renew = False  # this is no restart that somebody wanted
    own.master_port = port or plan.master_port
    if copies:
        own.restore, own.restore_step = True, copies[0].step
        own.ClearField("stored")
        del own.sources[:]
        own.sources.extend(_source(copy, node) for copy in copies)
    return own


def _source(copy: fleet_pb2.Copy, node: str) -> fleet_pb2.ShardSource:
    return fleet_pb2.ShardSource(
        node=node,
        generation=copy.generation,
        rank=copy.rank,
        step=copy.step,
        root_hash=copy.root_hash,
        size_bytes=copy.size_bytes,
        layout=copy.layout,
    )


def origin(plan: fleet_pb2.StartGeneration) -> int:
    """Return the generation that made the state that a plan restores; 0 when it restores none."""
    if not plan.restore:
        return 0
    return plan.sources[0].generation if plan.sources else plan.stored.generation
