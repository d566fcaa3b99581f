"""A name that one user's job had, and another user takes: nothing goes from one to the other."""

import json
import os
from pathlib import Path

import pytest

from everstep_agent.ipc.peer import Peer
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.jobs.sessions.launcher import admit_launcher
from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.transfer.messages import PutCopy, Refusal
from everstep_agent.vault.transfer.remote_agent import RemoteAgent, connect
from everstep_common.launcher_messages import Start
from everstep_common.rank_messages import TO_TRAINER, Attached, Begin, Entry, Skip
from everstep_common.reports import Storage
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually
from integration.storage_processes import children
from integration.storage_world import save_and_store, storing
from integration.vault_world import (
    JOB_ID,
    KEY,
    TIMEOUT_S,
    Client,
    Node,
    attach_message,
    join_message,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

_STRANGER = Peer(os.getpid(), os.getuid() + 1, os.getgid() + 1)


class _Deaf:
    """A launcher that hears nothing."""

    def send(self, message: object) -> None:
        """See LauncherPeer."""

    def hang_up(self) -> None:
        """See LauncherPeer."""

    def is_hung_up(self) -> bool:
        """See LauncherPeer."""
        return False

    async def close(self) -> None:
        """See LauncherPeer."""


def _job(node: Node) -> NodeJob:
    job = node.jobs.known("demo")
    assert job is not None
    return job


def _joined_by_stranger(node: Node) -> NodeJob:
    """Let another user's launcher join."""
    job = node.jobs.table.of_new_launcher(join_message())
    admit_launcher(job, join_message(), _STRANGER, _Deaf())
    return job


@lived
async def test_a_failed_jobs_snapshots_are_not_the_next_users(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        async with launcher(node) as control:
            node.order(start_generation=plan(3))
            assert isinstance(await control.hear(), Start)
            async with trainer(node, generation=3) as rank:
                await rank.save(1, b"a secret")
                await node.outlet.until(lambda: node.outlet.copies() == {(3, 0, 1, False)})
            node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
            await control.hear()
        before = _job(node)
        job = _joined_by_stranger(node)
        node.order(start_generation=plan(4, job_id="demo-9"))
        assert (job.vault.holdings.size_bytes, job.facts.lineage) == (0, "demo-9")
        # They are still the first user's, who may go on from them.
        assert before.vault.holdings.size_bytes
        assert node.outlet.copies_of("demo-1") == {(3, 0, 1, False)}
        assert node.outlet.copies_of("demo-9") == set()
        node.order(keep_job=fleet_pb2.KeepJob(job="demo", job_id="demo-12", lineage_id="demo-1"))
        assert before.facts.job_id == "demo-12"
        assert node.outlet.copies_of("demo-1") == {(3, 0, 1, False)}


@lived
async def test_a_failed_jobs_storage_is_not_the_next_users(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node:
        before = children()
        async with storing(node, folder) as rank:
            await save_and_store(node, rank, 1, b"a secret")
            assert children() - before  # it waits for the next step
            node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        job = _joined_by_stranger(node)
        assert not job.storage.files.configured
        assert job.facts.storage.storage is None
        # Nobody writes anything more of a job that has ended.
        await eventually(lambda: not children() - before)


@lived
async def test_a_process_of_the_last_job_gets_nothing_of_the_next_one(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        async with launcher(node) as control:
            node.order(start_generation=plan(1))
            assert isinstance(await control.hear(), Start)
            rank = await Client.connect(node, TO_TRAINER)
            assert isinstance(await rank.ask(attach_message()), Attached)
            await rank.reserve()
            await rank.save(1, b"ours")
            node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
            await control.hear()
        _joined_by_stranger(node)
        node.order(start_generation=plan(1, job_id="demo-9"))
        # It is of the right generation and rank, of a job that is over.
        assert "is over" in await rank.ask_restore()
        assert (await rank.ask(Begin(2))) == Skip("generation 1 is over; this process should exit")
        rank.close()


@pytest.mark.parametrize(
    "change",
    [{"world_size": -1}, {"size_bytes": -1}, {"generation": 2**63 - 1}, {"world_size": 2**40}],
)
@lived
async def test_what_a_user_writes_into_latest_ends_no_agent(
    tmp_path: Path, change: dict[str, int]
) -> None:
    folder = tmp_path / "state"
    (folder / "demo").mkdir(parents=True)
    latest = {"generation": 1, "target": None, "world_size": 1, "size_bytes": 1} | change
    (folder / "demo" / "latest").write_text(json.dumps(latest))
    async with running(settings(tmp_path)) as node:
        async with launcher(node, storage=Storage(path=str(folder))):
            await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
            (record,) = node.outlet.bodies("launcher_joined")
            assert record.launcher_joined.stored_generation == 0
            assert not record.launcher_joined.HasField("latest")
        async with launcher(node, job="another"):
            pass


@lived
async def test_an_absurd_request_of_a_peer_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        node.direct(1)
        remote = RemoteAgent(node.jobs.bulk_address, JOB_ID, KEY)
        for absurd in (
            PutCopy(CopyRef(CopyKey(1, 0, 5), 0, b""), (), 2),
            PutCopy(CopyRef(CopyKey(1, -1, 5), 1, b""), (Entry("w", 0, 1),), 2),
            PutCopy(CopyRef(CopyKey(1, 0, -5), 1, b""), (Entry("w", 0, 1),), 2),
            PutCopy(CopyRef(CopyKey(1, 0, 5), 2**62, b""), (Entry("w", 0, 1),), 2),
            # An agent of an older version: it would take the numbers of stripes for bytes.
            PutCopy(CopyRef(CopyKey(1, 0, 5), 1, b""), (Entry("w", 0, 1),)),
        ):
            wire = await connect(remote, TIMEOUT_S)
            await wire.send(absurd)
            assert isinstance(await wire.receive(Refusal), Refusal)
            wire.close()
        wire = await connect(remote, TIMEOUT_S)
        await wire.send(Entry("not a request", 0, 0))
        said = await wire.receive(Refusal)
        assert isinstance(said, Refusal)
        assert "does not understand" in said.reason
        wire.close()
