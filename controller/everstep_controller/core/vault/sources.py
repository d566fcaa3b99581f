"""Restore sources: the copies of a restored step that each member of a generation is told of."""

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from everstep_common.orders import ShardSource
from everstep_controller.core.model.job import JobRecord

# A job of so few copies tells all of them to everybody.
_ALL_MAX = 256

# Otherwise so many of each part: the best one, and others in case it turns out bad.
_OF_A_PART = 3


@dataclass(slots=True)
class RestoreSources:
    """The copies that a generation restores from, grouped once for all its members.

    All of them to each would be members times copies: 2,048 x 98,304 on the largest jobs. A rank
    of an unchanged world wants what the rank of its number had, so it is told of that rank's
    copies and of equal copies of the same parts. When the world has changed, the controller cannot
    know which parts a rank will ask for, and tells of every part: a few copies of each.
    """

    all: tuple[ShardSource, ...]
    # The ranks of each member; none when the world is not the one that the state is of.
    ranks: Mapping[str, range]
    members: Set[str]
    _of_rank: dict[int, list[ShardSource]] = field(default_factory=dict)
    # A few copies of each part.
    _of_part: dict[str, list[ShardSource]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        of_rank, of_part = (
            defaultdict[int, list[ShardSource]](list),
            defaultdict[str, list[ShardSource]](list),
        )
        for source in self.all:
            of_rank[source.rank].append(source)
            part = of_part[source.layout]
            if len(part) < _OF_A_PART:
                part.append(source)
        self._of_rank, self._of_part = dict(of_rank), dict(of_part)

    def of(self, node: str) -> tuple[ShardSource, ...]:
        """Return the copies that a member is told of, best first."""
        if len(self.all) <= _ALL_MAX or node not in self.members:
            return self.all
        if not self.ranks:
            return self._of_every_part()
        return self._of(self.ranks[node])

    def _of_every_part(self) -> tuple[ShardSource, ...]:
        return tuple(source for part in self._of_part.values() for source in part)

    def _of(self, ranks: Sequence[int]) -> tuple[ShardSource, ...]:
        # By identity: to hash the fields of all copies of a large job takes 60 ms.
        if not all(rank in self._of_rank for rank in ranks):
            # Other ranks' copies stand in, and nobody here knows which.
            return self._of_every_part()
        own = [source for rank in ranks for source in self._of_rank[rank]]
        told = dict(zip(map(id, own), own, strict=True))
        for part in dict.fromkeys([source.layout for source in own]):
            for source in self._of_part[part]:
                told[id(source)] = source
        return tuple(told.values())


def group_sources(job: JobRecord) -> RestoreSources:
    """Return the copies that the current generation of a job restores from."""
    origin = job.lineage.restored[0] if job.lineage.restored else 0
    world_size = next((p.world_size for p in job.lineage.branch if p.generation == origin), 0)
    count = job.spec.processes_per_node
    ranks = {
        name: range(i * count, (i + 1) * count) for i, name in enumerate(job.generation.members)
    }
    return RestoreSources(
        job.generation.sources, ranks if world_size == job.world_size else {}, ranks.keys()
    )
