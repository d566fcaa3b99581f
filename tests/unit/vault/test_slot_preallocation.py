"""How large slots will be asked for, before anybody asks."""

from dataclasses import replace
from itertools import count
from typing import Any

from everstep_agent.vault.slot_preallocation import slot_sizes_of_plan
from everstep_agent.vault.snapshots.holdings import RankMemory
from everstep_agent.vault.snapshots.restore_plan import RestorePlan
from everstep_agent.vault.snapshots.slots import SlotTable
from everstep_common.orders import ShardSource

_GIB = 1024**3


def _plan() -> RestorePlan:
    sources = tuple(
        ShardSource(
            node="b",
            bulk_address="",
            generation=2,
            rank=rank,
            step=1,
            root_hash="00",
            size_bytes=_GIB,
        )
        for rank in (0, 1, 1, 5)
    )
    return RestorePlan(generation=3, ranks=range(1, 3), sources=sources)


def _memory(rank: int, slot_bytes: int) -> RankMemory:
    numbers = count(1)
    return RankMemory("job", SlotTable(2, rank, slot_bytes, [], lambda: next(numbers)), {}, {})


def test_a_rank_that_was_elsewhere_gets_its_copys_size_and_what_trainers_ask_beyond() -> None:
    assert slot_sizes_of_plan(_plan(), ()).keys() == {1}
    asked = _GIB + _GIB // 64
    assert asked < slot_sizes_of_plan(_plan(), ())[1] < 1.25 * asked


def test_a_rank_that_was_here_asks_for_what_it_had() -> None:
    memories = (_memory(1, 7), _memory(2, 8), _memory(5, 9))
    assert slot_sizes_of_plan(_plan(), memories) == {1: 7, 2: 8}


class CountedRanks:
    """The ranks of a node, which nobody may go through one by one."""

    def __contains__(self, rank: object) -> bool:
        return rank in range(1, 2**31 - 1)


def test_only_ranks_of_a_known_size_are_looked_at_however_many_a_node_has() -> None:
    ranks: Any = CountedRanks()
    sizes = slot_sizes_of_plan(replace(_plan(), ranks=ranks), (_memory(2, 7),))
    assert list(sizes) == [1, 2, 5]
