"""DDP, FSDP2 and tensor parallelism over real processes: shards, shares and other world sizes."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard

from everstep.copy_engine.views import StateError
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore
from with_torch.training import names_of_ddp, placed, replaced, resume, train
from with_torch.world import merged, run_world


def _equal(a: dict[str, object], b: dict[str, object]) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(torch.as_tensor(a[name]), torch.as_tensor(b[name])) for name in a
    )


@pytest.mark.parametrize(("kind", "size"), [("ddp", 3), ("fsdp", 3), ("hsdp", 4), ("tp", 4)])
def test_the_same_world_goes_on_bit_for_bit(kind: str, size: int, tmp_path: Path) -> None:
    first = run_world(size, tmp_path, train, kind, 2, 3)
    store = merged([one[0] for one in first])
    again = run_world(size, tmp_path, resume, kind, store, 2, 3)
    assert [one[3] for one in again] == [one[1] for one in first]
    assert all(_equal(one[0], first[0][2]) for one in again)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_four_ranks_become_three_and_then_five(kind: str, tmp_path: Path) -> None:
    first = run_world(4, tmp_path, train, kind, 2, 0)
    three = run_world(3, tmp_path, resume, kind, merged([one[0] for one in first]), 2, 0)
    assert all(_equal(one[0], first[0][2]) for one in three)
    five = run_world(5, tmp_path, resume, kind, merged([one[2] for one in three]), 2, 1)
    assert all(_equal(one[0], first[0][2]) for one in five)


def test_a_rank_of_the_same_world_needs_its_own_copy_only(tmp_path: Path) -> None:
    first = run_world(3, tmp_path, train, "fsdp", 1, 0)
    alone = [ShardStore(dict(one[0].copies)) for one in first]
    for rank, store in enumerate(alone):
        assert list(store.copies) == [rank]
    again = run_world(3, tmp_path, resume, "fsdp", merged(alone), 1, 0)
    for rank, (_, asked, _, _) in enumerate(again):
        assert set(asked) <= set(alone[rank].copies[rank])


@pytest.mark.parametrize(("kind", "size"), [("ddp", 4), ("hsdp", 4)])
def test_replicas_save_each_tensor_once(kind: str, size: int, tmp_path: Path) -> None:
    first = run_world(size, tmp_path, train, kind, 1, 0)
    names = [name for one in first for name in one[0].copies[_only(one[0])]]
    shared = [name for name in names if not name.startswith("rank-")]
    assert len(shared) == len(set(shared))
    per_rank = [_shared_bytes(one[0]) for one in first]
    assert max(per_rank) < sum(per_rank) / 2


@pytest.mark.parametrize(("inside", "prefix"), [(False, "model/module."), (True, "model/")])
def test_ddp_keeps_parameters_equal_but_not_buffers(
    inside: bool, prefix: str, tmp_path: Path
) -> None:
    names = run_world(2, tmp_path, names_of_ddp, inside)
    shared = [name for saved in names for name in saved if name.startswith("model/")]
    assert sorted(shared) == [f"{prefix}bias", f"{prefix}weight"]
    for rank, saved in enumerate(names):
        assert f"rank-{rank}/{prefix}running_mean" in saved


def test_only_ddp_says_which_parameters_are_equal() -> None:
    model = nn.Linear(1, 1)
    for other in (model, 3):
        with pytest.raises(StateError, match="modules that are torch's DistributedDataParallel"):
            capture_of({"model": model}, Place(), equal=[other])


def _only(store: ShardStore) -> int:
    (rank,) = store.copies
    return rank


def _shared_bytes(store: ShardStore) -> int:
    shards = store.copies[_only(store)]
    return sum(e.size_bytes for name, (e, _) in shards.items() if not name.startswith("rank-"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([Shard(0), Shard(1)], [Shard(1), Replicate()]),
        ([Shard(1), Shard(1)], [Shard(0), Replicate()]),
        ([Replicate(), Shard(2)], [Shard(1), Replicate()]),
        ([Replicate(), Replicate()], [Shard(2), Replicate()]),
    ],
)
def test_any_placement_becomes_any_other(
    before: list[object], after: list[object], tmp_path: Path
) -> None:
    shape = (5, 7, 3)
    first = run_world(4, tmp_path, placed, before, shape)
    store = merged(first)
    assert all(run_world(3, tmp_path, replaced, after, shape, store))
