"""torch.distributed.checkpoint over the vault, on the world size that saved and on others."""

from pathlib import Path

import pytest
import torch.distributed as dist

from everstep.checkpoint import VaultReader, VaultWriter
from everstep.copy_engine.views import RestoreError, StateError
from fakes.shard_store import ShardStore, StoreRun
from with_torch.few_tensors import load_few, save_few
from with_torch.training import checkpoint, load_checkpoint, train
from with_torch.world import merged, run_world


@pytest.mark.parametrize(
    ("kind", "size", "other"), [("ddp", 2, "fsdp"), ("fsdp", 3, "fsdp"), ("fsdp", 3, "ddp")]
)
def test_what_one_world_saves_another_loads(
    kind: str, size: int, other: str, tmp_path: Path
) -> None:
    runs = run_world(size, tmp_path, checkpoint, kind, 3, None)
    store = merged([run.store for run in runs])
    whole = run_world(size, tmp_path, train, kind, 1, 0)[0][2]
    for new_size in sorted({size, 2}):
        assert all(run_world(new_size, tmp_path, load_checkpoint, other, store, whole))


def test_a_rank_that_torch_gives_nothing_to_save_takes_part_all_the_same(tmp_path: Path) -> None:
    runs = run_world(4, tmp_path, save_few)
    store = merged([run.store for run in runs])
    # Torch has given a tensor each to two ranks; the agent takes no copy without a shard.
    assert sorted(map(list, store.copies.values())) == [
        ["a"],
        ["b"],
        ["rank-2/#nothing"],
        ["rank-3/#nothing"],
    ]
    for size in (4, 3, 1):
        assert all(run_world(size, tmp_path, load_few, store))
    described = VaultReader(StoreRun(0, store, step=4)).read_metadata()
    assert set(described.state_dict_metadata) == {"a", "b"}


def test_the_step_is_read_from_the_id_that_torchtitan_gives(tmp_path: Path) -> None:
    (run,) = run_world(1, tmp_path, checkpoint, "ddp", 120, "outputs/checkpoint-2/step-120")
    names = list(run.store.copies[0])
    assert "app.model.inner.weight" in names
    assert "counter.count#bytes" in names


def test_a_writer_that_knows_no_step_says_so() -> None:
    writer = VaultWriter(StoreRun(0, ShardStore()))
    with pytest.raises(StateError, match=r"writer\.at\(step\)"):
        writer.set_up_storage_writer(True)
    writer.reset("no number")
    with pytest.raises(StateError, match=r"writer\.at\(step\)"):
        writer.set_up_storage_writer(True)


def test_a_reader_without_a_step_says_so() -> None:
    assert not dist.is_initialized()
    with pytest.raises(RestoreError, match="no step to restore"):
        VaultReader(StoreRun(0, ShardStore())).read_metadata()
