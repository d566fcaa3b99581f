"""Memory: what does not fit is refused before it starts, what is only kept goes first."""

import mmap
import os
from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_common.launcher_messages import TO_LAUNCHER, Start
from everstep_common.rank_messages import Refused, Reserve, Reserved
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    Client,
    Kept,
    join_message,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

_MIB = 1 << 20


class _Gauge:
    """A node with so much memory to spare."""

    def __init__(self, available: int) -> None:
        self.available = available

    def available_bytes(self) -> int:
        return self.available


@lived
async def test_a_job_whose_snapshots_will_not_fit_is_refused_before_it_starts(
    tmp_path: Path,
) -> None:
    world = Environment(stored_fds={}, keeper=Kept(), gauge=_Gauge(40 * _MIB))
    large = {"snapshot_bytes": 10 * _MIB, "processes_per_node": 2, "nodes_max": 1}
    async with running(settings(tmp_path), world=world) as node:
        control = await Client.connect(node, TO_LAUNCHER)
        answer = await control.ask(join_message(**large))
        control.close()
        assert answer == Refused(
            "snapshots of this job take 60.0 MiB on this node (2 ranks x 10.0 MiB x 3 slots) and "
            "this node can spare 40.0 MiB; 6.7 MiB a rank would fit, or 2 slots each "
            "(jobs.slots_per_rank of the agent)"
        )
        assert not node.jobs.jobs()
        async with launcher(node, **large | {"running_generation": 1}):
            pass  # its processes run: they are not stopped for want of snapshots


@lived
async def test_a_job_that_begins_takes_what_a_failed_one_keeps(tmp_path: Path) -> None:
    gauge = _Gauge(40 * _MIB)
    world = Environment(stored_fds={}, keeper=Kept(), gauge=gauge)
    chosen = settings(tmp_path, memory_bytes_max=40 * _MIB)
    async with running(chosen, world=world) as node:
        async with launcher(node) as control:
            node.order(start_generation=plan(1))
            assert isinstance(await control.hear(), Start)
            async with trainer(node, 10 * _MIB) as rank:
                await rank.save(1, b"kept")
                await node.outlet.until(node.outlet.copies)
            node.order(end_job=fleet_pb2.EndJob(job="demo"))
            await control.hear()
        assert node.jobs.metrics().vault_memory_bytes == 30 * _MIB
        refused = await Client.connect(node, TO_LAUNCHER)
        # Even without the memory that is kept it would not fit: then that stays.
        answer = await refused.ask(join_message(job="huge", snapshot_bytes=20 * _MIB))
        refused.close()
        assert isinstance(answer, Refused)
        assert node.jobs.metrics().vault_memory_bytes == 30 * _MIB
        async with launcher(node, job="next", snapshot_bytes=10 * _MIB):
            assert node.jobs.metrics().vault_memory_bytes == 0
            assert node.jobs.metrics().vault_evictions_total == 1


@lived
async def test_after_a_recovery_fewer_slots_are_better_than_none(tmp_path: Path) -> None:
    page = 4096
    chosen = settings(tmp_path, memory_bytes_max=5 * page)
    async with running(chosen) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node, page) as rank:
            for step in range(3):
                await rank.save(step, b"needed until generation 2 has a recoverable step")
            await node.outlet.until(lambda: len(node.outlet.copies()) == 3)
        node.order(start_generation=plan(2))
        await control.hear()
        async with trainer(node, page, generation=2) as rank:
            assert len(rank.maps) == 2
            assert isinstance(await rank.ask(Reserve(3 * page)), Refused)
            await rank.save(3, b"saved")
            await node.outlet.until(lambda: (2, 0, 3, False) in node.outlet.copies())


@lived
async def test_memory_that_a_rank_outgrew_is_given_back_though_it_keeps_its_mappings(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, memory_per_user_bytes_max=64 * _MIB)
    async with running(chosen) as node, launcher(node):
        node.order(start_generation=plan(1))
        async with trainer(node, 0) as rank:
            mappings = []
            for megabytes in range(2, 20, 2):
                answer = await rank.ask(Reserve(megabytes * _MIB))
                assert isinstance(answer, Reserved)
                fds, rank.fds[:] = list(rank.fds), []
                mappings += [(fd, mmap.mmap(fd, megabytes * _MIB)) for fd in fds]
                assert node.jobs.metrics().vault_memory_bytes == 3 * megabytes * _MIB
            blocks = [os.fstat(fd).st_blocks for fd, _ in mappings]
            assert not any(blocks[:-3])
            assert all(blocks[-3:])
            refused = await rank.ask(Reserve(24 * _MIB))
            assert isinstance(refused, Refused)
            assert "jobs.memory_per_user_bytes_max leaves" in refused.reason
            for fd, mapping in mappings:
                mapping.close()
                os.close(fd)
