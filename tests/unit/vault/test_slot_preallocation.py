"""How large slots will be asked for, before anybody asks."""

from itertools import count

from everstep_agent.vault.slot_preallocation import slot_sizes_of_plan
from everstep_agent.vault.snapshots.holdings import RankMemory
from everstep_agent.vault.snapshots.slots import SlotTable
from everstep_proto.generated import fleet_pb2

_GIB = 1024**3


def _plan() -> fleet_pb2.StartGeneration:
    sources = [fleet_pb2.ShardSource(rank=rank, size_bytes=_GIB) for rank in (0, 1, 1, 5)]
    return fleet_pb2.StartGeneration(generation=3, first_rank=1, processes=2, sources=sources)


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
