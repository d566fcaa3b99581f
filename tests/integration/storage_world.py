"""Jobs with a storage folder, for tests: a launcher that names it, and what the controller says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_common.launcher_messages import Start
from everstep_common.reports import Storage
from everstep_proto.generated import fleet_pb2
from integration.vault_world import Client, Node, launcher, plan, trainer


def storage_in(folder: Path) -> Storage:
    """What a launcher says of a folder, which it has made."""
    folder.mkdir(exist_ok=True)
    return Storage(path=str(folder))


@asynccontextmanager
async def storing(node: Node, folder: Path, generation: int = 1) -> AsyncIterator[Client]:
    """A launcher of a job with storage, and its one attached rank; the rank."""
    async with launcher(node, storage=storage_in(folder)) as control:
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        node.order(start_generation=plan(generation))
        assert isinstance(await control.hear(), Start)
        async with trainer(node, generation=generation) as rank:
            yield rank


async def stored(node: Node, step: int, generation: int = 1) -> fleet_pb2.VaultCopy:
    """Wait until the node says that it has its file of a step; return what it says."""

    def found() -> list[fleet_pb2.VaultCopy]:
        report = node.outlet.reports.get("demo")
        return [
            copy
            for copy in (report.copies if report else ())
            if copy.on_disk and (copy.generation, copy.step) == (generation, step)
        ]

    await node.outlet.until(found)
    return found()[0]


def published(
    copies: list[fleet_pb2.VaultCopy],
    generation: int,
    keep: tuple[tuple[int, int], ...] = (),
    skipped: tuple[tuple[int, int], ...] = (),
) -> fleet_pb2.Publish:
    """What the controller orders when every file of a step is there."""
    first = copies[0]
    target = fleet_pb2.StoredStep(
        generation=first.generation, step=first.step, world_size=len(copies)
    )
    return fleet_pb2.Publish(
        generation=generation,
        target=target,
        files=[
            fleet_pb2.StoredFile(
                rank=copy.rank,
                root_hash=copy.root_hash,
                size_bytes=copy.size_bytes,
                layout=copy.layout,
            )
            for copy in copies
        ],
        keep=[fleet_pb2.StoredStep(generation=of, step=step, world_size=1) for of, step in keep],
        skipped=[fleet_pb2.DataRange(first=first, last=last) for first, last in skipped],
    )


def latest(folder: Path) -> tuple[int, int, int] | None:
    """The generation that moved ``latest``, and the step it points to; None without one."""
    path = folder / "demo" / "latest"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    return content["generation"], content["target"]["generation"], content["target"]["step"]


def steps(folder: Path) -> set[str]:
    """The folders of steps."""
    return {
        str(path.relative_to(folder / "demo")) for path in (folder / "demo").glob("gen-*/step-*")
    }


async def save_and_store(
    node: Node, rank: Client, step: int, content: bytes
) -> fleet_pb2.VaultCopy:
    """Snapshot a step, and have it brought to storage."""
    await rank.save(step, content)
    await node.outlet.until(lambda: (1, 0, step, False) in node.outlet.copies())
    node.direct(1, step, persist_steps=[step])
    async with asyncio.timeout(30):
        return await stored(node, step)
