"""A state that torch.distributed.checkpoint cannot have saved ends no training, unless asked to."""

import asyncio
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

import everstep
from everstep.checkpoint import VaultWriter
from everstep.copy_engine.views import StateError
from everstep_common.launcher_messages import Start
from fakes.shard_store import ShardStore, StoreRun
from integration.trainer_rank import environ
from integration.vault_world import Node, launcher, lived, plan, running, settings


class Packed(torch.Tensor):
    """A tensor of another kind: what its memory means, nobody here knows."""


def _state(*, strange: bool) -> dict[str, object]:
    odd = torch.ones(4)
    return {"a": torch.ones(3), "b": odd.as_subclass(Packed) if strange else odd}


def _save_some(node: Node) -> int:
    warnings.simplefilter("ignore")
    run = everstep.init(environ(node, 1))
    writer = VaultWriter(run)
    for step in range(4):
        state = _state(strange=step in (1, 2))
        save(state, storage_writer=writer.at(step), no_dist=True)
        run.step(step)
    return run.unsaved_steps


def _refused(node: Node) -> None:
    warnings.simplefilter("ignore")
    writer = VaultWriter(everstep.init(environ(node, 1)), raises=True)
    with pytest.raises(CheckpointException, match=r"(?s)SnapshotError.*'b' is a Packed"):
        save(_state(strange=True), storage_writer=writer.at(1), no_dist=True)


@lived
async def test_a_tensor_that_cannot_be_saved_costs_its_steps_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        assert await asyncio.to_thread(_save_some, node) == 2
        await node.outlet.until(
            lambda: {(1, 0, 0, False), (1, 0, 3, False)} <= node.outlet.copies()
        )
        assert {step for _, _, step, _ in node.outlet.copies()} == {0, 3}
    told = [line for line in caplog.messages if "steps are not saved" in line]
    assert len(told) == 1
    assert "tensor 'b' is a Packed" in told[0]


@lived
async def test_who_asks_for_it_hears_of_it(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        await asyncio.to_thread(_refused, node)


def test_a_writer_is_not_sent_to_another_process() -> None:
    with pytest.raises(StateError, match=r"AsyncCheckpointerType\.THREAD"):
        pickle.dumps(VaultWriter(StoreRun(0, ShardStore())))
