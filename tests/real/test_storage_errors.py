"""A disk that breaks under a job's storage: said, survived, and used again when it is repaired."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from integration.storage_world import latest, published, save_and_store, storing
from integration.vault_world import Client, Node, lived, running, settings
from real.small_disk import SmallDisk, denies_disks, small_disk

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(denies_disks()), reason=denies_disks()),
]
_SIZE = 600_000
_LAST = 9


class _Fault(NamedTuple):
    begin: Callable[[SmallDisk], None]
    end: Callable[[SmallDisk], None]
    sentence: str


_FAULTS: Mapping[str, _Fault] = {
    "read-only": _Fault(SmallDisk.forbid, SmallDisk.allow, "Read-only file system"),
    "pulled": _Fault(SmallDisk.pull, SmallDisk.plug_in, "Input/output error"),
    "no blocks": _Fault(SmallDisk.fill_below, SmallDisk.empty_below, "No space left on device"),
}


def _judged(node: Node) -> Judgement:
    judged = [one for one in node.jobs.judgements(()) if one.key.condition == "StorageFailing"]
    return judged[0]


def _committed(node: Node, step: int) -> bool:
    return (1, 0, step, False) in node.outlet.copies()


def _whole(node: Node) -> list[int]:
    return [one.step for one in node.outlet.reports["demo"].stored]


def _state(step: int) -> bytes:
    return bytes([step]) * _SIZE


async def _store(node: Node, rank: Client, step: int) -> None:
    copy = await save_and_store(node, rank, step, _state(step))
    node.direct(1, step, persist_steps=[step], publish=published([copy], 1))
    await node.outlet.until(lambda: step in _whole(node))


async def _train(node: Node, rank: Client) -> None:
    """Train in the slots that are left, until the step to be stored is given up."""
    await rank.save(2, _state(2))
    await node.outlet.until(partial(_committed, node, 2))
    for step in range(3, _LAST):
        node.direct(1, step - 1, persist_steps=[2])
        await rank.save(step, _state(step))
        await node.outlet.until(partial(_committed, node, step))
    await node.outlet.until(lambda: node.outlet.reports["demo"].persist_failures)


@pytest.mark.parametrize("fault", _FAULTS)
@lived
async def test_a_disk_that_breaks_stops_nothing_and_is_used_again_when_it_is_repaired(
    tmp_path: Path, fault: str
) -> None:
    begin, end, sentence = _FAULTS[fault]
    with small_disk(tmp_path) as disk:
        async with running(settings(tmp_path / "a")) as node, storing(node, disk.mount) as rank:
            await rank.reserve(_SIZE)
            await _store(node, rank, 1)
            begin(disk)
            await _train(node, rank)
            judged = _judged(node)
            assert isinstance(judged, Faulty)
            assert sentence in str(judged.finding.evidence)
            await asyncio.to_thread(end, disk)
            await _store(node, rank, _LAST)
            assert isinstance(_judged(node), Healthy)
            assert latest(disk.mount) == (1, 1, _LAST)
            folder = disk.mount / f"demo/gen-1/step-{_LAST}"
            assert not list(folder.glob("*.tmp"))
            assert (folder / "rank-0.safetensors").read_bytes()[-_SIZE:] == _state(_LAST)
