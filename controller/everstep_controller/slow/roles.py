"""Roles from process groups: which ranks of a job do the same work, so that they can be compared.

Ranks do the same work that have the same place in the pipeline, among the experts, in the context
and in the tensor: they differ in their data only. Groups tell by their names what they are for, as
Megatron (TENSOR_MODEL_PARALLEL_GROUP) and torch's meshes (mesh_tp) call them; a group with sends
and receives is a pipeline, whatever its name.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np

from everstep_common.hangs.reports.members import MembersError, are_named, members_of
from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_controller.slow.peers import Indices

# With fewer peers a rank is compared with its own past; so are taken together what is symmetric.
_MEMBERS_MIN = 4
# What all groups may name together: of 16,384 ranks, each in 60 groups of 16.
_NAMED_MAX = 16_000_000
_STAGES_MAX = 512
_WORDS = re.compile(r"[a-z]+")
# By rank its place in each of its groups along an axis.
_Places = dict[int, tuple[int, ...]]


class _Axis(Enum):
    """Purposes of groups, in the order in which roles are named."""

    PIPELINE = "pp"
    EXPERT = "ep"
    CONTEXT = "cp"
    TENSOR = "tp"
    DATA = "dp"


_AXES: Mapping[str, _Axis] = {
    word: axis
    for axis, words in (
        (_Axis.PIPELINE, "pp pipe pipeline"),
        (_Axis.EXPERT, "ep expert experts moe"),
        (_Axis.CONTEXT, "cp context"),
        (_Axis.TENSOR, "tp tensor"),
        (_Axis.DATA, "dp ddp edp data fsdp hsdp shard replicate"),
    )
    for word in words.split()
}
# Along these the work is split evenly; the stages of a pipeline and the experts differ.
_SYMMETRIC = (_Axis.TENSOR, _Axis.CONTEXT)


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group: its name or description, and its ranks in their order."""

    name: str
    ranks: tuple[int, ...]
    # Whether its ranks send to each other point to point.
    sends: bool = False


class RoleBasis(Enum):
    """Where roles come from."""

    TOLD = "told"
    GROUPS = "groups"
    # Nothing says that ranks do different work: all are compared with all.
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class RankRoles:
    """The role of each rank, as the number of a name; and a sentence on how it is known."""

    roles: Indices
    names: tuple[str, ...]
    basis: RoleBasis
    sentence: str


def told_roles(told: Mapping[int, str], world_size: int) -> RankRoles:
    """Return the roles that a job told; ranks of which it told none have one of their own."""
    names = [told.get(rank, "") for rank in range(world_size)]
    missing = sum(rank not in told for rank in range(world_size))
    beside = f", except {missing} ranks" if missing else ""
    return _numbered(names, RoleBasis.TOLD, f"the job told the roles{beside}")


def group_roles(groups: Iterable[ProcessGroup], world_size: int) -> RankRoles:
    """Return the roles that process groups show. What names ranks outside the job is left out."""
    places = _places(groups, world_size)
    axes = [axis for axis in _Axis if axis in places]
    if not axes:
        said = "no process group says that ranks do different work: all are compared with all"
        return _numbered([""] * world_size, RoleBasis.NOTHING, said)
    together = []
    names = [_name(axes, places, rank) for rank in range(world_size)]
    for axis in _SYMMETRIC:
        if _large_enough(names):
            break
        if axis in axes:
            axes.remove(axis)
            together.append(axis.value)
            names = [_name(axes, places, rank) for rank in range(world_size)]
    by = " and ".join(axis.value for axis in axes) or "no axis"
    beside = f"; the ranks of {' and '.join(together)} are taken together" if together else ""
    return _numbered(names, RoleBasis.GROUPS, f"roles by {by}, as the process groups show{beside}")


def reported_groups(reports: Iterable[RankHangReport]) -> list[ProcessGroup]:
    """Return the groups that reports of ranks name, each once, where they name the members."""
    sends: dict[tuple[str, str], bool] = defaultdict(bool)
    for report in reports:
        for group in report.groups:
            if group.size > 1 and are_named(group.members):
                sends[group.description, group.members] |= group.p2p_enqueued is not None
    found, named = [], 0
    for (name, members), sent in sends.items():
        try:
            ranks = members_of(members)
        except MembersError:
            continue
        named += len(ranks)
        if named > _NAMED_MAX:
            break
        found.append(ProcessGroup(name, ranks, sent))
    return found


def _places(groups: Iterable[ProcessGroup], world_size: int) -> dict[_Axis, _Places]:
    """Return by axis the place of each rank: in each of its groups, the smallest group first."""
    members: dict[_Axis, set[tuple[int, ...]]] = defaultdict(set)
    for group in groups:
        axis = _axis(group, world_size)
        known = all(0 <= rank < world_size for rank in group.ranks)
        if axis not in (None, _Axis.DATA) and len(group.ranks) > 1 and known:
            members[axis].add(group.ranks)
    places = {}
    for axis, found in members.items():
        chain = _stages(found) if axis is _Axis.PIPELINE else None
        places[axis] = _in_groups(found) if chain is None else chain
    return places


def _in_groups(groups: Iterable[tuple[int, ...]]) -> _Places:
    of_rank: _Places = {}
    for ranks in sorted(groups, key=lambda one: (len(one), one)):
        for place, rank in enumerate(ranks):
            of_rank[rank] = (*of_rank.get(rank, ()), place)
    return of_rank


def _stages(groups: Iterable[tuple[int, ...]]) -> _Places | None:
    """Return how many stages are before each rank, also where each group is one pair of them.

    None where ranks follow each other in a circle.
    """
    after = sorted({pair for ranks in groups for pair in pairwise(ranks)})
    depth = dict.fromkeys((rank for pair in after for rank in pair), 0)
    for _ in range(_STAGES_MAX):
        changed = False
        for one, next_one in after:
            if depth[next_one] <= depth[one]:
                depth[next_one], changed = depth[one] + 1, True
        if not changed:
            return {rank: (stage,) for rank, stage in depth.items()}
    return None


def _axis(group: ProcessGroup, world_size: int) -> _Axis | None:
    """Return what a group is for; None for one that is along several axes, or not known."""
    words = _WORDS.findall(group.name.lower())
    axes = {_AXES[word] for word in words if word in _AXES}
    if _Axis.DATA in axes:
        return _Axis.DATA
    if len(axes) == 1:
        return axes.pop()
    # The group of all ranks sends between stages where a job makes no group for its pipeline.
    if not axes and group.sends and len(group.ranks) < world_size:
        return _Axis.PIPELINE
    return None


def _name(axes: Sequence[_Axis], places: Mapping[_Axis, _Places], rank: int) -> str:
    told = [
        f"{axis.value}{'.'.join(map(str, places[axis][rank]))}"
        for axis in axes
        if rank in places[axis]
    ]
    return " ".join(told)


def _large_enough(names: Sequence[str]) -> bool:
    _, counts = np.unique(names, return_counts=True)
    return bool(counts.min() >= _MEMBERS_MIN)


def _numbered(names: Sequence[str], basis: RoleBasis, sentence: str) -> RankRoles:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    roles = np.array([numbers[name] for name in names], dtype=np.int64)
    return RankRoles(roles, tuple(numbers), basis, sentence)
