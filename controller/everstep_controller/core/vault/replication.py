"""Replication: which node keeps the replicas of which member, over failure domains."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from everstep_common.member_tree import collector_of
from everstep_common.orders import ShardSource
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.spares import spares_of

# Of how many members a node keeps the replicas at most. An agent takes 64 connections at once:
# those of four nodes with eight ranks and two streams each; and each waits longer for its turn.
KEPT_MAX = 4


@dataclass(frozen=True, slots=True)
class Replication:
    """Assignment of replicas in one generation: which member keeps those of which."""

    # By member, the node that keeps its replicas.
    targets: Mapping[str, str] = field(default_factory=dict)
    # Nodes that had memory for the replicas of one member only when the targets were chosen.
    short: frozenset[str] = frozenset()
    # The spare that keeps the replicas of a job on one node; empty where members keep them.
    keeper: str = ""
    # What the generation began from, for the keeper, which no plan tells.
    begun_from: tuple[ShardSource, ...] = ()
    # By node, the members whose replicas it keeps: ``targets``, the other way round.
    sources: Mapping[str, tuple[str, ...]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for member, keeper in self.targets.items():
            found[keeper] += (member,)
        object.__setattr__(self, "sources", dict(found))


def plan_ring(members: Sequence[str], state: State, short: Collection[str]) -> Replication:
    """Return the replication of a generation among its own members."""
    domains = {name: state.nodes[name].spec.domain for name in members if name in state.nodes}
    return Replication(replica_targets(members, domains, short), frozenset(short))


def plan_keeper(
    before: Replication, job: JobRecord, state: State, holders: Collection[str]
) -> Replication:
    """Return the replication of a job that runs on one node: with a spare, where one waits."""
    keeper = keeper_of(job, state, before.keeper, holders)
    targets = {job.generation.members[0]: keeper} if keeper else {}
    return replace(before, targets=targets, keeper=keeper, begun_from=job.generation.sources)


def plan_collectors(members: Sequence[str]) -> dict[str, str]:
    """Return for every member but the first the one that it tells its steps, in a tree of members.

    Members use it among themselves while no controller is there.
    """
    numbers = {member: collector_of(number) for number, member in enumerate(members)}
    return {member: members[at] for member, at in numbers.items() if at is not None}


def replica_targets(
    members: Sequence[str], domain_of: Mapping[str, str], short: Collection[str] = ()
) -> dict[str, str]:
    """Return for every member another one, of another failure domain as far as there are any.

    Sorted by domain and shifted by the largest domain's size, no one stays in its own domain, and
    each keeps the replicas of exactly one. A domain with more than half of the members shares the
    others out: each of these keeps those of several, ``KEPT_MAX`` at most, and of one where memory
    is ``short``. Who is left over stays in that domain.
    """
    if len(members) < 2:
        return {}
    ring = sorted(members, key=lambda node: domain_of.get(node, ""))
    largest, size = Counter(domain_of.get(node, "") for node in ring).most_common(1)[0]
    if len(ring) // 2 < size < len(ring):
        first = next(at for at, node in enumerate(ring) if domain_of.get(node, "") == largest)
        ring = ring[first:] + ring[:first]
        return _shared_out(ring[:size], ring[size:], short)
    shift = size if size < len(ring) else 1
    return {node: ring[(index + shift) % len(ring)] for index, node in enumerate(ring)}


def _shared_out(
    inside: Sequence[str], outside: Sequence[str], short: Collection[str]
) -> dict[str, str]:
    """Return the targets where most members are ``inside`` one domain; each of them keeps one's."""
    shares = _shares(len(inside), [1 if node in short else KEPT_MAX for node in outside])
    leaving = sum(shares)
    staying = len(inside) - leaving
    targets = dict(zip(inside[leaving:], inside, strict=False))
    # In neighbours: when one comes or goes, only those at the ends of a share change their target.
    for keeper, share, end in zip(outside, shares, accumulate(shares), strict=True):
        targets.update(dict.fromkeys(inside[end - share : end], keeper))
        targets[keeper] = inside[staying + end - share]
    return targets


def _shares(count: int, limits: Sequence[int]) -> list[int]:
    """Share out as many of ``count`` as the limits allow, as evenly as they do."""
    shares = [0] * len(limits)
    for done, index in enumerate(sorted(range(len(limits)), key=limits.__getitem__)):
        shares[index] = min(limits[index], count // (len(limits) - done))
        count -= shares[index]
    return shares


def keeper_of(job: JobRecord, state: State, before: str, holders: Collection[str]) -> str:
    """Return the spare that keeps the replicas of a job on one node; empty when there is none.

    It stays who it was; a new one is best in another failure domain, and has some of it already.
    """
    if len(job.generation.members) != 1:
        return ""
    member, nodes = job.generation.members[0], state.nodes
    able = [
        name
        for name in spares_of(job)
        if nodes[name].liveness.connected
        and nodes[name].spec.bulk_address
        and not nodes[name].unreachable
    ]
    if before in able or not able:
        return before if before in able else ""
    home = nodes[member].spec.domain if member in nodes else ""

    def worse(name: str) -> tuple[bool, bool, bool, str]:
        node = nodes[name]
        return bool(node.spare_check.failed), node.spec.domain == home, name not in holders, name

    return min(able, key=worse)
