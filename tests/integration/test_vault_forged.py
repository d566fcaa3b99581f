"""Frames that no library of ours would send: they harm the job that sent them, and nobody else."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_agent.ipc.message_memory import SMALL_BYTES_MAX
from everstep_agent.ipc.processes import identify
from everstep_common.launcher_messages import TO_LAUNCHER, RankProcess, Start, Started, Stop
from everstep_common.rank_messages import (
    Begin,
    Commit,
    Entry,
    Progress,
    Ready,
    Refused,
    Reserve,
    Slot,
)
from everstep_common.reports import GenerationFinished, GenerationStopped, RankExited
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    TIMEOUT_S,
    Client,
    Node,
    join_message,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)

_MOST = 2**63 - 1


async def _serves(node: Node) -> None:
    async with launcher(node, job="of-somebody-else"):
        assert "of-somebody-else" in [job.job for job in node.jobs.jobs()]


@pytest.mark.parametrize(
    "change",
    [
        {"nodes_min": -1},
        {"nodes_max": 2**40},
        {"processes_per_node": -1},
        {"restarts_max": _MOST},
        {"free_port": -1},
        {"running_generation": -1},
        {"job": "a\0b"},
        {"job": "a b\n"},
        {"job": "\N{GRINNING FACE}" * 100},
        {"protocol": 99},
    ],
)
@lived
async def test_a_join_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    async with running(settings(tmp_path)) as node:
        client = await Client.connect(node, TO_LAUNCHER)
        assert isinstance(await client.ask(join_message(**change)), Refused)
        client.close()
        # Such a name in the Hello would keep the whole node from its controller.
        assert not node.jobs.jobs()
        assert not node.outlet.records
        await _serves(node)


@pytest.mark.parametrize(
    "message",
    [
        RankExited(generation=1, rank=0, exit_code=_MOST, signal=0, at_boot_ns=1, last_line=""),
        RankExited(generation=1, rank=-1, exit_code=1, signal=0, at_boot_ns=1, last_line=""),
        GenerationStopped(1, -1, 0),
        GenerationStopped(-1, 1, 0),
        GenerationFinished(-1, 0),
    ],
)
@lived
async def test_a_launcher_that_counts_wrong_is_cut_off_alone(
    tmp_path: Path, message: object
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        await control.tell(message)
        with pytest.raises(ConnectionError):
            await control.hear()
        await _serves(node)


@pytest.mark.parametrize(
    "message", [Begin(-5), Begin(_MOST), Ready(-1), Progress(_MOST, 1, 1), Progress(1, -1, 1)]
)
@lived
async def test_a_rank_that_counts_wrong_is_cut_off_alone(tmp_path: Path, message: object) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        await rank.tell(message)
        with pytest.raises(ConnectionError):
            await rank.hear()
        await _serves(node)


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (Entry("w", -1, 1),),
        (Entry("w", 0, -1),),
        (Entry("w", _MOST, _MOST),),
        (Entry("w", 0, 2), Entry("v", 1, 2)),
        (Entry("w", 0, 1), Entry("w", 1, 1)),
    ],
)
@lived
async def test_an_absurd_manifest_is_refused(tmp_path: Path, entries: tuple[Entry, ...]) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        slot = await rank.ask(Begin(1))
        assert isinstance(slot, Slot)
        assert isinstance(await rank.ask(Commit(1, slot.slot, slot.epoch, entries)), Refused)
        await rank.save(2, b"state after 2")


@lived
async def test_lies_about_a_tensor_harm_nobody(tmp_path: Path) -> None:
    lies = (
        Entry("a", 0, 4, "F32", (_MOST, _MOST), "t", (-5,), (_MOST,)),
        Entry("b", 4, 4, "no type", (-1,), "", (1, 2, 3), ()),
        Entry("c", 8, 0),
    )
    async with running(settings(tmp_path)) as node, training(node) as rank:
        slot = await rank.begin(1, b"12345678")
        await rank.ask(Commit(1, slot.slot, slot.epoch, lies))
        await node.outlet.until(lambda: (1, 0, 1, False) in node.outlet.copies())


@lived
async def test_a_stop_that_nobody_ordered_does_not_fence_later_generations_off(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        await control.tell(GenerationStopped(10**17, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        # A controller that hears of a generation that it never gave out takes itself for old, and
        # acts on nothing any more: for all jobs of all users.
        assert [job.generation for job in node.jobs.jobs()] == [1]
        node.order(start_generation=plan(2))
        assert isinstance(await control.hear(), Start)
        async with trainer(node, generation=2) as rank:
            await rank.save(1, b"state after 1")


@lived
async def test_a_launcher_cannot_have_the_agent_kill_what_it_did_not_start(tmp_path: Path) -> None:
    # A child of a child is what a launcher starts; this one's parent is gone, as a stranger's is.
    script = (
        "import subprocess, sys;"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        "stdout=subprocess.DEVNULL, start_new_session=True).pid)"
    )
    shown = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], stdout=subprocess.PIPE, check=True
    )
    stranger = int(shown.stdout)
    try:
        async with (
            running(settings(tmp_path, stop_patience_s=0.05, reconnect_grace_s=0.05)) as node,
            launcher(node) as control,
        ):
            node.order(start_generation=plan(1))
            assert isinstance(await control.hear(), Start)
            await control.tell(Started(1, (RankProcess(0, stranger),), 5))
            await node.outlet.until(lambda: node.outlet.bodies("phase_reached"))
            node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
            assert isinstance(await control.hear(), Stop)
            await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
            os.kill(stranger, 0)
            assert identify(stranger)
    finally:
        os.kill(stranger, 9)


@lived
async def test_who_has_not_said_who_it_is_cannot_fill_the_agents_memory(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(TIMEOUT_S)
            await asyncio.to_thread(raw.connect, str(node.settings.socket_path))
            raw.sendall(struct.pack(">I", SMALL_BYTES_MAX + 1))
            assert await asyncio.to_thread(raw.recv, 1) == b""
        await _serves(node)


@lived
async def test_a_rank_that_reads_no_answer_gets_no_heap_of_descriptors(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        before = len(rank.fds)

        async def greedy() -> None:
            for _ in range(50):
                await rank.tell(Reserve(4096))
            for _ in range(50):
                await rank.hear()

        with pytest.raises(ConnectionError):
            await greedy()
        assert len(rank.fds) - before < 10 * node.settings.slots_per_rank
        await _serves(node)
