"""Frontiers: how far each rank has come in each process group, put together from all reports. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from everstep_common.hangs.members import MembersError, are_named, members_of
from everstep_common.hangs.rank_report import Group, Operation, RankReport

# Members that all groups name together, for each rank of the job: no rank is in more groups than a
# report holds. A few hostile reports could otherwise name 200,000 ranks in every group.
_MEMBERS_PER_RANK = 64

GroupKey = tuple[str, str, int]


@dataclass(slots=True, eq=False)
class GroupFrontier:
    """One process group: its members, and what those that told of it have enqueued."""

    description: str
    # As text, and as ranks; where they are not named, the ranks that told of the group.
    text: str
    members: Sequence[int]
    told: dict[int, Group] = field(default_factory=dict)
    # Members of which it is not known what they have enqueued.
    unknown: list[int] = field(default_factory=list)
    # Enqueued collectives by rank, of those of which it is known.
    enqueued: dict[int, int] = field(default_factory=dict)
    # Ranks that wait in a collective, farthest first.
    waiting: list[int] = field(default_factory=list)
    has_p2p: bool = False

    @property
    def named(self) -> bool:
        """Return whether all members are known."""
        return are_named(self.text)

    def farthest(self) -> int:
        """Return the newest collective that a member waits in; 0 where none waits."""
        return self.enqueued[self.waiting[0]] if self.waiting else 0

    def behind(self, sequence: int) -> list[int]:
        """Return the members that are known not to have enqueued a collective."""
        return [rank for rank, enqueued in self.enqueued.items() if enqueued < sequence]


@dataclass(frozen=True, slots=True)
class Frontiers:
    """All groups of a job, and which reports do not fit into them."""

    groups: tuple[GroupFrontier, ...]
    # By rank, the groups that it told of.
    of_rank: Mapping[int, tuple[GroupFrontier, ...]]
    # Reports that cannot be true, with the reason.
    invalid: Mapping[int, str]
    # Groups that are too many or too large together to be looked at.
    left_out: int


def frontiers_of(reports: Mapping[int, RankReport], world_size: int) -> Frontiers:
    """Put the groups of all ranks together."""
    groups, invalid, left_out = _grouped(reports, world_size)
    for group in groups.values():
        _fill(group)
    of_rank: dict[int, list[GroupFrontier]] = {}
    for group in groups.values():
        for rank in group.told:
            of_rank.setdefault(rank, []).append(group)
    kept = {rank: tuple(found) for rank, found in of_rank.items()}
    return Frontiers(tuple(groups.values()), kept, invalid, left_out)


def _grouped(
    reports: Mapping[int, RankReport], world_size: int
) -> tuple[dict[GroupKey, GroupFrontier], dict[int, str], int]:
    members: dict[str, frozenset[int] | None] = {}
    ranks: dict[str, tuple[int, ...]] = {}
    budget = _MEMBERS_PER_RANK * max(world_size, len(reports))
    invalid: dict[int, str] = {}
    left_out = 0
    for report in reports.values():
        for group in report.groups:
            text = group.members
            if text not in members and are_named(text):
                found = _members(text, group.size, world_size)
                if found and len(found) > budget:
                    left_out += 1
                    found = None
                budget -= len(found or ())
                members[text] = None if found is None else frozenset(found)
                ranks[text] = found or ()
            if are_named(text) and members[text] is not None:
                if report.rank not in (members[text] or ()):
                    invalid[report.rank] = f"it tells of a group of ranks {text:.80}, not its own"
    groups: dict[GroupKey, GroupFrontier] = {}
    for report in reports.values():
        if report.rank in invalid:
            continue
        for group in report.groups:
            text = group.members
            if are_named(text) and members[text] is None:
                continue
            key = (group.description, text, group.ordinal)
            if key not in groups:
                groups[key] = GroupFrontier(group.description, text, ranks.get(text, ()))
            groups[key].told[report.rank] = group
    return groups, invalid, left_out


def _members(text: str, size: int, world_size: int) -> tuple[int, ...] | None:
    """Return the members of a group; None where they cannot be true."""
    try:
        found = members_of(text)
    except MembersError:
        return None
    return found if len(found) == size and found[-1] < max(world_size, 1) else None


def _fill(group: GroupFrontier) -> None:
    told = group.told
    group.has_p2p = any(one.p2p_completed is not None for one in told.values())
    for rank, one in told.items():
        # Where others sent and received, a number alone may count either.
        if one.enqueued is not None and not (group.has_p2p and one.p2p_enqueued is None):
            group.enqueued[rank] = one.enqueued
    if not group.named:
        group.members = tuple(told)
    group.unknown = [rank for rank in group.members if rank not in group.enqueued]
    group.waiting = [rank for rank in group.enqueued if first_collective(told[rank]) is not None]
    group.waiting.sort(key=group.enqueued.__getitem__, reverse=True)


def first_collective(group: Group) -> Operation | None:
    """Return the collective that a rank waits in first within a group."""
    if not group.pending:
        return None
    return next((one for one in group.pending if one.peer is None and not is_p2p(one)), None)


def is_p2p(operation: Operation) -> bool:
    """Return whether an operation is point-to-point."""
    return operation.name in ("send", "recv")


def oldest(operations: Iterable[tuple[GroupFrontier, Operation]]) -> tuple[GroupFrontier, Operation]:
    """Return the operation that was enqueued first; all of one rank, so of one clock."""
    return min(operations, key=lambda one: _created(one[1]))


_created = attrgetter("created_ns")
