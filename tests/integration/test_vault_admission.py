"""Who may not, is told why in one sentence, and nothing changes."""

import contextlib
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from everstep_agent.jobs.job.context import Environment
from everstep_common.launcher_messages import TO_LAUNCHER, End, Join
from everstep_common.rank_messages import TO_TRAINER, Begin, Refused, RefusedForNow, Reserve, Skip
from everstep_common.reports import LauncherLeft
from everstep_common.version import TRAINER_PROTOCOL
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    Client,
    Kept,
    attach_message,
    join_message,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"token": "guessed"}, "start it with everstep run"),
        ({"job": "unheard-of"}, "start it with everstep run"),
        ({"generation": 0}, "should exit"),
        ({"generation": 2}, "should exit"),
        ({"rank": 5}, "take RANK from"),
        ({"protocol": 99}, "install a matching everstep"),
    ],
)
@lived
async def test_a_process_that_does_not_belong_is_refused(
    tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    async with running(settings(tmp_path)) as node, training(node):
        said = len(node.outlet.records)
        stranger = await Client.connect(node, TO_TRAINER)
        refused = await stranger.ask(attach_message(**change))
        assert isinstance(refused, Refused)
        assert sentence in refused.reason
        stranger.close()
        assert len(node.outlet.records) == said
        assert [job.job for job in node.jobs.jobs()] == ["demo"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"token": "guessed"}, "another token"),
        ({"token": ""}, "needs a name and a token"),
        ({"protocol": 99}, "install a matching everstep"),
        ({}, "has a launcher on this node already"),
    ],
)
@lived
async def test_a_launcher_that_does_not_belong_is_refused(
    tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node):
        stranger = await Client.connect(node, TO_LAUNCHER)
        refused = await stranger.ask(join_message(**change))
        assert isinstance(refused, Refused | RefusedForNow)
        assert sentence in refused.reason
        stranger.close()
        assert len(node.outlet.bodies("launcher_joined")) == 1


@lived
async def test_a_rank_that_attaches_a_second_time_is_refused_and_told_why(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node):
        twin = await Client.connect(node, TO_TRAINER)
        refused = await twin.ask(attach_message())
        assert isinstance(refused, Refused)
        assert refused.reason.startswith("rank 0 is attached already, by this very process")
        assert "Call snapshots() and step() of what init() returned" in refused.reason
        twin.close()


@lived
async def test_a_launcher_that_the_controller_refuses_is_told_and_leaves_no_trace(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        async with launcher(node) as control:
            node.order(refuse_launcher=fleet_pb2.RefuseLauncher(job="demo"))
            assert await control.hear() == Refused("test")
        # Its place is free for anybody's next try.
        async with launcher(node, token="another"):
            assert not node.outlet.bodies("launcher_left")


@lived
async def test_leaving_is_told_once_and_ends_with_the_job(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        await control.tell(LauncherLeft("interrupted by its user", by_user=True))
        await node.outlet.until(lambda: node.outlet.bodies("launcher_left"))
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        assert await control.hear() == End(succeeded=False, reason="test")
        (left,) = node.outlet.bodies("launcher_left")
        assert left.launcher_left.by_user


class _Gauge:
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def available_bytes(self) -> int:
        return self.size_bytes


@lived
async def test_memory_that_is_not_there_is_refused_with_what_would_fit(tmp_path: Path) -> None:
    world = Environment(stored_fds={}, keeper=Kept(), gauge=_Gauge(96 * 1024))
    async with running(settings(tmp_path), world=world) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node, 0) as rank:
            refused = await rank.ask(Reserve(64 * 1024))
            assert isinstance(refused, Refused)
            assert "3 x 32.0 KiB would fit" in refused.reason
            assert await rank.ask(Begin(1)) == Skip("reserve slots first")
            await rank.reserve(32 * 1024)


@lived
async def test_the_memory_of_a_failed_job_makes_way_for_another(tmp_path: Path) -> None:
    chosen = settings(tmp_path, memory_bytes_max=3 * 4096)
    async with running(chosen) as node:
        async with training(node) as rank:
            await rank.save(1, b"kept for a while")
            await node.outlet.until(lambda: node.outlet.copies())
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        assert node.outlet.copies() == {(1, 0, 1, False)}
        async with launcher(node, job="next") as control:
            following = plan(1)
            following.job = "next"
            node.order(start_generation=following)
            await control.hear()
            async with trainer(node, job="next"):
                await node.outlet.until(lambda: not node.outlet.copies())


@lived
async def test_two_agents_do_not_share_a_folder(tmp_path: Path) -> None:
    async with running(settings(tmp_path)):
        with pytest.raises(OSError, match="another agent uses this folder"):
            async with running(settings(tmp_path)):
                pass


@lived
async def test_one_user_cannot_take_all_connections(tmp_path: Path) -> None:
    chosen = settings(tmp_path, connections_per_user_max=2)
    async with running(chosen) as node, training(node):
        third = await Client.connect(node, TO_TRAINER)
        refused = await third.hear()
        assert isinstance(refused, Refused)
        assert "this user has 2 connections" in refused.reason
        assert "jobs.connections_per_user_max" in refused.reason
        third.close()


def _open_inodes() -> set[int]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found.add(os.fstat(int(fd)).st_ino)
    return found


@lived
async def test_descriptors_that_nobody_knows_are_closed(tmp_path: Path) -> None:
    kept = Kept()
    unknown = os.memfd_create("left", os.MFD_CLOEXEC)
    inode = os.fstat(unknown).st_ino
    kept.store("vault-unknown", unknown)
    world = Environment(stored_fds={"vault-unknown": unknown}, keeper=kept)
    async with running(settings(tmp_path), world=world):
        assert inode not in _open_inodes()
    assert not kept.fds


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewerJoin(Join):
    """The first message of a launcher of a later version, which says more."""

    nice: int = 5


_NewerJoin.__name__ = "Join"


def _fields_of(join: Join) -> dict[str, Any]:
    return {field.name: getattr(join, field.name) for field in fields(join)}


@lived
async def test_a_launcher_of_another_version_hears_that_and_not_of_its_fields(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        newer = _NewerJoin(**_fields_of(join_message()))
        for protocol, heard in (
            (TRAINER_PROTOCOL + 1, "install a matching everstep in the job's environment"),
            (TRAINER_PROTOCOL, "unknown field 'nice'"),
        ):
            client = await Client.connect(node, TO_LAUNCHER)
            answer = await client.ask(replace(newer, protocol=protocol))
            client.close()
            assert isinstance(answer, Refused)
            assert heard in answer.reason
