"""A copy that is damaged in any tier is found and reported, and the next source is used.

Real agents, memory and files. Each family damages one tier in every way there is.
"""

import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_common.launcher_messages import Start
from everstep_proto.generated import fleet_pb2
from integration.storage_world import published, storage_in, stored
from integration.vault_world import (
    Client,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

_STEP = 3
_GOOD = b"state after 3".ljust(200_000, b".")
_OLD = b"state after 2".ljust(200_000, b".")


@dataclass(frozen=True, slots=True)
class _World:
    """A node whose two ranks have equal copies of a step in its memory and in the folder."""

    node: Node
    folder: Path
    ranks: tuple[Client, ...]

    @property
    def file(self) -> Path:
        """The file of rank 0."""
        return self.folder / f"demo/gen-1/step-{_STEP}/rank-0.safetensors"

    def whole(self) -> fleet_pb2.StoredStep:
        """The step in shared storage."""
        told = self.node.outlet.reports["demo"].stored
        (found,) = [one for one in told if one.step == _STEP]
        return found

    def on_disk_of(self, other: Node, rank: int) -> fleet_pb2.ShardSource:
        """The file of a rank as a copy on the own disk of another node."""
        source = self.node.source(self.node, _STEP, rank)
        source.on_disk, source.node = True, other.name
        source.bulk_address = other.jobs.bulk_address
        return source


@asynccontextmanager
async def _world(tmp_path: Path) -> AsyncIterator[_World]:
    folder = tmp_path / "steps"
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(running(settings(tmp_path / "a"), "node-1"))
        control = await stack.enter_async_context(launcher(node, storage=storage_in(folder)))
        node.order(start_generation=plan(1, processes=2))
        assert isinstance(await control.hear(), Start)
        ranks = [
            await stack.enter_async_context(trainer(node, len(_GOOD), rank=rank)) for rank in (0, 1)
        ]
        for step, state in ((2, _OLD), (_STEP, _GOOD)):
            for rank in ranks:
                await rank.save(step, state)
            await _publish(node, step)
        yield _World(node, folder, tuple(ranks))


async def _publish(node: Node, step: int) -> None:
    node.direct(1, step, persist_steps=[step])
    await stored(node, step)
    await node.outlet.until(lambda: len(_files(node, step)) == 2)
    node.direct(1, step, persist_steps=[step], publish=published(_files(node, step), 1))
    seen = node.outlet.reports["demo"]
    await node.outlet.until(
        lambda: step in {one.step for one in node.outlet.reports["demo"].stored} or seen is None
    )


def _files(node: Node, step: int) -> list[fleet_pb2.VaultCopy]:
    copies = node.outlet.reports["demo"].copies
    return [copy for copy in copies if copy.on_disk and copy.step == step]


def _told(node: Node, tier: str) -> bool:
    return any("rank 0" in bad and tier in bad for bad in node.outlet.bad)


@asynccontextmanager
async def _another(
    tmp_path: Path, world: _World, *sources: Callable[[Node], fleet_pb2.ShardSource], storage: bool
) -> AsyncIterator[tuple[Node, Client]]:
    """A node that has nothing of the job but these sources; a rank of generation 2 on it."""
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(running(settings(tmp_path / "b"), "node-2"))
        joined = launcher(node, storage=storage_in(world.folder))
        control = await stack.enter_async_context(joined)
        ordered = plan(2, tuple(source(node) for source in sources), step=_STEP)
        if storage:
            ordered.stored.CopyFrom(world.whole())
        node.order(start_generation=ordered)
        assert isinstance(await control.hear(), Start)
        yield node, await stack.enter_async_context(trainer(node, 0, generation=2))


def _flip(path: Path) -> None:
    """Flip a bit in the middle of the tensor; the size stays."""
    with path.open("r+b") as file:
        file.seek(-len(_GOOD) // 2, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def _shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1000)


def _lose_the_end(path: Path) -> None:
    """As a crash does where nobody called fsync: the right size, zeros at its end."""
    size = path.stat().st_size
    os.truncate(path, size - 1000)
    os.truncate(path, size)


def _take_from_older_step(*names: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        for name in names:
            shutil.copy(path.parents[1] / "step-2" / name, path.parent / name)

    return damage


def _tear_description(path: Path) -> None:
    description = path.with_name("rank-0.json")
    description.write_bytes(description.read_bytes()[:-40])


def _change_description(path: Path) -> None:
    """Say that the state begins a byte later."""
    description = path.with_name("rank-0.json")
    content = json.loads(description.read_bytes())
    assert isinstance(content["data_begins"], int), content
    content["data_begins"] += 1
    description.write_text(json.dumps(content))


_DAMAGE: Mapping[str, Callable[[Path], None]] = {
    "a flipped bit": _flip,
    "a short file": _shorten,
    "an end of zeros": _lose_the_end,
    "an older step's file": _take_from_older_step("rank-0.safetensors"),
    "an older step's file and description": _take_from_older_step(
        "rank-0.safetensors", "rank-0.json"
    ),
    "a missing file": Path.unlink,
    "a missing description": lambda path: path.with_name("rank-0.json").unlink(),
    "a torn description": _tear_description,
    "a changed description": _change_description,
}


@pytest.mark.parametrize("damage", _DAMAGE)
@lived
async def test_a_damaged_file_on_the_own_disk_is_reported_and_another_one_is_used(
    tmp_path: Path, damage: str
) -> None:
    async with _world(tmp_path) as world:
        _DAMAGE[damage](world.file)
        sources = [lambda node, r=rank: world.on_disk_of(node, r) for rank in (0, 1)]
        async with _another(tmp_path, world, *sources, storage=False) as (node, rank):
            assert await rank.restore("w") == _GOOD
            await node.outlet.until(lambda: _told(node, "local disk"))


@pytest.mark.parametrize("damage", _DAMAGE)
@lived
async def test_a_damaged_file_in_shared_storage_is_reported_and_another_one_is_used(
    tmp_path: Path, damage: str
) -> None:
    async with _world(tmp_path) as world:
        _DAMAGE[damage](world.file)
        async with _another(tmp_path, world, storage=True) as (node, rank):
            answer = await rank.restore("w")
            assert answer == _GOOD
            await node.outlet.until(lambda: _told(node, "shared storage"))
