"""Every member is told of all that it may need of the restored state, and of little else."""

from dataclasses import replace

from everstep_common.orders import ShardSource
from everstep_controller.core.model.job import JobRecord, Members
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.vault.recovery_step import group_sources
from unit.core.vault.vault_story import job


def _job(nodes: int, of_a_part: int = 1, world: int | None = None) -> JobRecord:
    """Return a job of 8 ranks a node that restores step 5; ``of_a_part`` ranks are equal."""
    record = job()
    record.generation.members = Members(f"n{i:03}" for i in range(nodes))
    record.spec = replace(record.spec, processes_per_node=8)
    record.lineage.restored = (1, 5)
    ranks = world or nodes * 8
    record.lineage.branch = [BranchPoint(1, 5, ranks), BranchPoint(2, None, nodes * 8)]
    record.generation.sources = tuple(
        ShardSource(
            f"n{(rank // 8 + shift) % nodes:03}", "", 1, rank, 5, "", 8, _part(rank, of_a_part)
        )
        for rank in range(ranks)
        for shift in range(2)
    )
    return record


def _part(rank: int, of_a_part: int) -> str:
    return f"part-{rank // of_a_part}"


def test_a_small_job_tells_everything_to_everybody() -> None:
    record = _job(4)
    assert group_sources(record).of("n001") == record.generation.sources


def test_a_member_of_an_unchanged_world_is_told_of_its_own_ranks() -> None:
    record = _job(64)
    told = group_sources(record).of("n003")
    assert {source.rank for source in told} == set(range(24, 32))
    assert len(told) == 16


def test_equal_copies_of_other_ranks_stand_by() -> None:
    record = _job(64, of_a_part=16)
    told = group_sources(record).of("n003")
    own = [source for source in told if 24 <= source.rank < 32]
    others = [source for source in told if source not in own]
    assert len(own) == 16
    assert {source.layout for source in others} == {"part-1"}
    assert len(others) <= 3


def test_every_part_is_told_when_the_world_has_changed() -> None:
    record = _job(64, of_a_part=2, world=400)
    told = group_sources(record).of("n003")
    assert {source.layout for source in told} == {
        source.layout for source in record.generation.sources
    }
    assert len(told) < len(record.generation.sources)


def test_a_member_whose_rank_has_no_copy_left_is_told_of_every_part() -> None:
    record = _job(64)
    record.generation.sources = tuple(
        source for source in record.generation.sources if source.rank != 24
    )
    told = group_sources(record).of("n003")
    assert {source.layout for source in told} == {
        source.layout for source in record.generation.sources
    }
    assert len(group_sources(record).of("n004")) == 16
