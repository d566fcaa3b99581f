"""Claims of the demo compared with what was seen, one sentence each; no I/O."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from everstep_cli.demo.cluster_view import ClusterView
from everstep_cli.demo.losses import LossComparison
from everstep_proto.generated import admin_pb2


@dataclass(frozen=True, slots=True)
class DemoClaim:
    """Something that was to happen, whether it did, and what shows it."""

    act: int
    claim: str
    held: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class DemoRestore:
    """A rank got its state back, as the agent of its node tells it."""

    node: str
    generation: int
    rank: int
    step: int
    # Nodes that the bytes came from; the node itself for its own memory.
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActSeen:
    """One fault: the view before it, the view after recovery, and what happened between."""

    act: int
    node: str
    before: ClusterView
    after: ClusterView
    restores: tuple[DemoRestore, ...]
    # First step that the generation after the recovery computed; None when it computed none.
    first_step: int | None

    @property
    def incident(self) -> admin_pb2.Incident:
        """Return the incident that the fault made; an empty one when there is none."""
        incidents = self.after.job.incidents if self.after.job else []
        known = len(self.before.job.incidents) if self.before.job else 0
        return incidents[known] if len(incidents) > known else admin_pb2.Incident()

    def restores_of(self, nodes: Iterable[str]) -> list[DemoRestore]:
        """Return the restores on these nodes in the generation after the recovery."""
        wanted = set(nodes)
        generation = self.after.generation
        return [r for r in self.restores if r.node in wanted and r.generation == generation]


def process_killed(seen: ActSeen) -> Iterator[DemoClaim]:
    """Judge the first act: a training process was killed."""
    incident = seen.incident
    yield DemoClaim(
        seen.act,
        "the ranks start again on the same nodes",
        seen.after.members == seen.before.members and incident.plan == "in_place",
        f"plan {incident.plan or 'none'}, nodes {' '.join(seen.after.members)}",
    )
    yield _blame(seen, "process")
    yield DemoClaim(
        seen.act,
        "no step that all ranks had completed is lost",
        incident.has_restored and incident.step_restored >= incident.step_before,
        _steps(seen),
    )
    yield _next_step(seen)
    own = seen.restores_of([seen.node])
    yield DemoClaim(
        seen.act,
        f"{seen.node} restores its rank from its own vault",
        bool(own) and all(r.sources == (seen.node,) for r in own),
        _sources(own),
    )


def node_killed(seen: ActSeen, spare: str) -> Iterator[DemoClaim]:
    """Judge the second act: a whole node was killed."""
    dead = seen.after.node(seen.node)
    yield DemoClaim(
        seen.act,
        f"the agent of {seen.node} is gone, and its machine is not taken for lost",
        not dead.connected and dead.state != "lost",
        f"{seen.node} is {dead.state}, {'connected' if dead.connected else 'not connected'}",
    )
    place = seen.before.members.index(seen.node)
    taken = seen.after.members[place] if place < len(seen.after.members) else "nobody"
    yield DemoClaim(
        seen.act,
        f"the spare {spare} takes the place of {seen.node}",
        taken == spare and len(seen.after.members) == len(seen.before.members),
        f"place {place} is taken by {taken}",
    )
    survivors = set(seen.before.members) - {seen.node}
    fetched = seen.restores_of([spare])
    yield DemoClaim(
        seen.act,
        f"{spare} restores the shards from a replica on a peer",
        bool(fetched) and all(r.sources and set(r.sources) <= survivors for r in fetched),
        _sources(fetched),
    )
    yield _blame(seen, "node")
    yield _same_step(seen)
    yield _next_step(seen)


def gpu_failed(seen: ActSeen) -> Iterator[DemoClaim]:
    """Judge the third act: a node's kernel reported Xid 79."""
    node = seen.after.node(seen.node)
    yield DemoClaim(
        seen.act,
        f"{seen.node} has a finding",
        node.findings > 0 and "79" in node.reason,
        f"{node.findings} open on {seen.node}, which is {node.state}: {node.reason}",
    )
    yield DemoClaim(
        seen.act,
        f"{seen.node} is isolated",
        any(claim.owner == "automation" for claim in node.claims),
        "; ".join(f"{claim.owner}: {claim.reason}" for claim in node.claims) or "no claim",
    )
    rest = tuple(name for name in seen.before.members if name != seen.node)
    yield DemoClaim(
        seen.act,
        "the job re-forms with the nodes that are left",
        seen.after.members == rest and seen.incident.plan == "reform",
        f"plan {seen.incident.plan or 'none'}, nodes {' '.join(seen.after.members)}",
    )
    yield _blame(seen, "finding")
    yield _same_step(seen)
    yield _next_step(seen)


def ending(
    final: ClusterView,
    ledger: admin_pb2.Ledger,
    losses: LossComparison,
    exits: Sequence[tuple[str, int]],
) -> Iterator[DemoClaim]:
    """Judge the end: the job is done, the time adds up, the losses are those of a calm run."""
    codes = ", ".join(f"{name} {code}" for name, code in exits)
    succeeded = final.state == "ended" and bool(exits) and not any(code for _, code in exits)
    yield DemoClaim(4, "the job ends with success", succeeded, f"{final.state}; launchers: {codes}")
    total = sum(category.time_ns for category in ledger.categories)
    yield DemoClaim(
        4,
        "the categories sum to the wall clock, to the nanosecond",
        total == ledger.wall_ns > 0,
        f"{total} of {ledger.wall_ns} ns",
    )
    yield DemoClaim(
        4,
        "the loss of every step equals that of an uninterrupted run, to the bit",
        losses.identical,
        losses.first_difference or f"{losses.equal} of {losses.steps} steps equal{_again(losses)}",
    )


def _again(losses: LossComparison) -> str:
    """Return what became of steps that some rank had computed when a fault cut them off."""
    if not losses.retrained:
        return ", each computed once"
    if losses.retrained == 1:
        result = "the same" if losses.retrained_equal else "another"
        return f"; 1 was cut off by a fault and computed again, with {result} result"
    same = f"{losses.retrained_equal} of them with the same result"
    return f"; {losses.retrained} were cut off by faults and computed again, {same}"


def _next_step(seen: ActSeen) -> DemoClaim:
    incident = seen.incident
    restored = incident.step_restored if incident.has_restored else None
    return DemoClaim(
        seen.act,
        "training goes on at the step after the restored one",
        restored is not None and seen.first_step == restored + 1,
        _steps(seen),
    )


def _steps(seen: ActSeen) -> str:
    incident = seen.incident
    restored = incident.step_restored if incident.has_restored else None
    return f"last step before {incident.step_before}, restored {restored}, next {seen.first_step}"


def _blame(seen: ActSeen, cause: str) -> DemoClaim:
    incident = seen.incident
    return DemoClaim(
        seen.act,
        f"the incident has its cause ({cause}) and its node",
        (incident.cause, incident.node) == (cause, seen.node),
        incident.message or "no incident",
    )


def _same_step(seen: ActSeen) -> DemoClaim:
    restores = seen.restores_of(seen.after.members)
    steps = sorted({restore.step for restore in restores})
    return DemoClaim(
        seen.act,
        "all ranks go back to the same step",
        len(steps) == 1 and {r.node for r in restores} == set(seen.after.members),
        f"{len(restores)} ranks restored step {' and '.join(map(str, steps)) or 'nothing'}",
    )


def _sources(restores: Iterable[DemoRestore]) -> str:
    told = [f"rank {r.rank} on {r.node} from {' and '.join(r.sources)}" for r in restores]
    return "; ".join(told) or "no restore was seen"
