"""Frontiers: how far each rank has come in each process group, from all reports. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from everstep_common.hangs.judging.contradictions import ROOTED, contradictions_of
from everstep_common.hangs.reports.members import MembersError, are_named, members_of
from everstep_common.hangs.reports.rank_report import GroupReport, Operation, RankHangReport

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
    told: dict[int, GroupReport] = field(default_factory=dict)
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


def frontiers_of(reports: Mapping[int, RankHangReport], world_size: int) -> Frontiers:
    """Put the groups of all ranks together."""
    groups, invalid, left_out = _grouped(reports, world_size)
    for group in groups.values():
        _fill(group)
    if disbelieved := _disbelieved(groups.values()):
        invalid |= disbelieved
        groups = {key: one for key, one in groups.items() if _without(one, disbelieved)}
    of_rank: dict[int, list[GroupFrontier]] = {}
    for group in groups.values():
        for rank in group.told:
            of_rank.setdefault(rank, []).append(group)
    kept = {rank: tuple(found) for rank, found in of_rank.items()}
    return Frontiers(tuple(groups.values()), kept, invalid, left_out)


def _disbelieved(groups: Iterable[GroupFrontier]) -> dict[int, str]:
    """Return ranks that say of collectives what cannot be true, with the reason."""
    found: dict[int, str] = {}
    for group in groups:
        if group.named and not group.has_p2p:
            name = f"{group.description:.80} ({group.text:.60})"
            for rank, reason in contradictions_of(name, group.told, group.enqueued):
                found.setdefault(rank, reason)
    return found


def _without(group: GroupFrontier, ranks: Collection[int]) -> bool:
    """Leave out what ranks told of a group; return whether anybody else told of it."""
    if group.told.keys() & ranks:
        for rank in ranks:
            group.told.pop(rank, None)
        group.enqueued.clear()
        _fill(group)
    return bool(group.told)


@dataclass(frozen=True, slots=True)
class _Members:
    """Members that a text names; ``usable`` is False where they cannot be true, or are too many."""

    ranks: tuple[int, ...] = ()
    known: frozenset[int] = frozenset()
    usable: bool = True

    def lack(self, rank: int) -> bool:
        """Return whether a rank is not one of them."""
        return bool(self.ranks) and rank not in self.known


class _MemberTable:
    """The members of all groups, each text read once; texts and groups are bounded together."""

    def __init__(self, world_size: int, reports: int) -> None:
        self.left_out = 0
        self._world_size = max(world_size, 1)
        self._budget = self._group_budget = _MEMBERS_PER_RANK * max(world_size, reports)
        self._known: dict[str, _Members] = {}

    def of(self, group: GroupReport) -> _Members:
        """Return the members of a group that a rank tells of."""
        found = self._known.get(group.members)
        if found is None:
            found = self._known[group.members] = self._read(group)
            self.left_out += not found.usable
        return found

    def has_room_for(self, members: _Members) -> bool:
        """Return whether one more group with these members may be looked at: then it is counted.

        One text can be that of a million groups, each of which has all its members.
        """
        fits = len(members.ranks) <= self._group_budget
        if fits:
            self._group_budget -= len(members.ranks)
        self.left_out += not fits
        return fits

    def _read(self, group: GroupReport) -> _Members:
        if not are_named(group.members):
            return _Members()
        try:
            ranks = members_of(group.members)
        except MembersError:
            return _Members(usable=False)
        fits = len(ranks) == group.size and ranks[-1] < self._world_size
        if not fits or len(ranks) > self._budget:
            return _Members(usable=False)
        self._budget -= len(ranks)
        return _Members(ranks, frozenset(ranks))


def _grouped(
    reports: Mapping[int, RankHangReport], world_size: int
) -> tuple[dict[GroupKey, GroupFrontier], dict[int, str], int]:
    table = _MemberTable(world_size, len(reports))
    invalid: dict[int, str] = {}
    groups: dict[GroupKey, GroupFrontier] = {}
    for rank, report in reports.items():
        told = [(group, table.of(group)) for group in report.groups]
        foreign = next((group for group, members in told if members.lack(rank)), None)
        if foreign is not None:
            invalid[rank] = f"it tells of a group of ranks {foreign.members:.80}, not its own"
            continue
        for group, members in told:
            if members.usable:
                key = (group.description, group.members, group.ordinal)
                if (frontier := groups.get(key)) is None:
                    if not table.has_room_for(members):
                        continue
                    frontier = GroupFrontier(group.description, group.members, members.ranks)
                    groups[key] = frontier
                frontier.told[rank] = group
    return groups, invalid, table.left_out


def _fill(group: GroupFrontier) -> None:
    told = group.told
    group.has_p2p = any(one.p2p_completed is not None for one in told.values())
    for rank, one in told.items():
        # Where others sent and received, a number alone may count either.
        if one.enqueued is not None and not (group.has_p2p and one.p2p_enqueued is None):
            group.enqueued[rank] = one.enqueued
    if not group.named:
        group.members = tuple(told)
    group.waiting = [rank for rank in group.enqueued if first_collective(told[rank]) is not None]
    group.enqueued.update(_inferred(group))
    group.unknown = [rank for rank in group.members if rank not in group.enqueued]
    group.waiting.sort(key=group.enqueued.__getitem__, reverse=True)


def _inferred(group: GroupFrontier) -> dict[int, int]:
    """Return how far members have come whose recorders kept nothing of the group.

    A dump of what is active, without numbers beside it: they stand in no operation of the group. So
    they have not come to the first one that most wait in, which nobody completes without them.
    Where few wait, these may be behind, and the others have completed it.
    """
    if 2 * len(group.waiting) <= len(group.told):
        return {}
    first = [one for rank in group.waiting if (one := first_collective(group.told[rank]))]
    oldest_waited = min(first, key=lambda one: one.sequence, default=None)
    if oldest_waited is None or oldest_waited.name in ROOTED:
        return {}
    before = oldest_waited.sequence - 1
    if any((one.completed or 0) > before for one in group.told.values()):
        return {}
    quiet = (r for r, one in group.told.items() if r not in group.enqueued and not one.pending)
    return dict.fromkeys(quiet, before)


def first_collective(group: GroupReport) -> Operation | None:
    """Return the collective that a rank waits in first within a group."""
    for one in group.pending:
        if one.peer is None and not is_p2p(one):
            return one
    return None


def is_p2p(operation: Operation) -> bool:
    """Return whether an operation is point-to-point."""
    return operation.name in ("send", "recv")


def oldest(
    operations: Iterable[tuple[GroupFrontier, Operation]],
) -> tuple[GroupFrontier, Operation]:
    """Return the operation that was enqueued first; all of one rank, so of one clock."""
    return min(operations, key=lambda one: _created(one[1]))


_created = attrgetter("created_ns")
