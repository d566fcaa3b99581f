"""How far ranks are, packed by an agent and read by the controller."""

import random
from dataclasses import replace

from everstep_common.reports import RankColumns, SampleBatch
from everstep_common.reports.rank_columns import RankRow, pack_ranks, unpack_ranks
from everstep_common.stamp import Stamp
from everstep_controller.telemetry.rank_progress import RankProgressTable
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire, to_wire

_PHASES = ("", "forward", "pause: evaluation")


def _rows(count: int, seed: int = 0, first: int = 0) -> list[RankRow]:
    chance = random.Random(seed)
    return [
        RankRow(
            rank=first + place,
            step=chance.choice([None, chance.getrandbits(40)]),
            median_ms=chance.getrandbits(20),
            p99_ms=chance.getrandbits(32),
            since_ms=chance.getrandbits(10),
            phase=chance.choice(_PHASES),
            own=chance.choice([0, chance.getrandbits(59)]),
            role=chance.choice(("", "stage 1", "stage 2")),
            printed=(printed := chance.choice([None, chance.getrandbits(40)])),
            printed_ms=0 if printed is None else chance.getrandbits(20),
        )
        for place in range(count)
    ]


def test_what_is_packed_is_read_again_also_over_the_wire() -> None:
    rows = _rows(64, first=128)
    columns = pack_ranks("llama-1", 7, rows)
    batch = SampleBatch(1, Stamp("b", 1, 1), 10**9, b"", (columns,))
    there = from_wire(SampleBatch, to_wire(batch, fleet_pb2.SampleBatch))
    assert list(unpack_ranks(there.ranks[0])) == rows
    assert (there.ranks[0].job, there.ranks[0].generation) == ("llama-1", 7)


def test_columns_of_an_agent_that_knows_nothing_of_own_work_are_read() -> None:
    rows = _rows(8)
    old = replace(pack_ranks("llama-1", 7, rows), own=b"", roles=(), rank_roles=b"", printed=b"")
    found = list(unpack_ranks(old))
    assert [(one.rank, one.step) for one in found] == [(one.rank, one.step) for one in rows]
    assert {(one.own, one.role, one.printed) for one in found} == {(0, "", None)}


def test_a_time_beyond_what_fits_is_the_longest() -> None:
    row = RankRow(rank=0, step=1, median_ms=2**40, p99_ms=2**40, since_ms=2**40, phase="")
    (found,) = unpack_ranks(pack_ranks("llama-1", 1, [row]))
    assert found.since_ms == 2**32 - 1


def test_columns_that_do_not_fit_together_are_read_to_the_shortest() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        count = chance.randrange(9)
        sizes = [chance.randrange(40) for _ in range(5)]
        steps, median, p99, since, phases = (chance.randbytes(size) for size in sizes)
        columns = RankColumns(
            job="j-1",
            generation=1,
            first_rank=count,
            steps=steps,
            median_ms=median,
            p99_ms=p99,
            since_ms=since,
            phases=("a",),
            rank_phases=phases,
        )
        rows = list(unpack_ranks(columns))
        assert len(rows) == min(sizes[0] // 8, *(size // 4 for size in sizes[1:4]), sizes[4])


def test_the_newest_word_of_a_node_replaces_the_one_before() -> None:
    table = RankProgressTable()
    older = pack_ranks("a-1", 1, _rows(2))
    newer = pack_ranks("a-1", 2, _rows(2, seed=1))
    other = pack_ranks("b-2", 5, _rows(1))
    table.replace("node-1", (older,), 10)
    table.replace("node-1", (newer, other), 20)
    table.replace("node-2", (older,), 15)
    found = table.of_job("a-1", ("node-1", "node-2", "node-3"))
    assert [(one.node, one.generation, one.told_ns) for one in found] == [
        ("node-1", 2, 20),
        ("node-2", 1, 15),
    ]
    assert list(found[0].rows()) == _rows(2, seed=1)
    table.replace("node-1", (), 30)
    assert not table.of_job("a-1", ("node-1",))
