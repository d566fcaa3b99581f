"""Memory that a job was promised when it joined is there when its ranks ask, and not for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.jobs.state.settings import JobsSettings
from everstep_common.launcher_messages import TO_LAUNCHER, Joined, Start
from everstep_common.rank_messages import Refused, Reserve, Reserved
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually
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
)

_MIB = 1 << 20
# Three slots of 10 MiB for one rank: two such jobs do not fit into 40 MiB.
_LARGE = {"snapshot_bytes": 10 * _MIB, "nodes_max": 1}


def _settings(folder: Path) -> JobsSettings:
    chosen = settings(folder, memory_bytes_max=40 * _MIB)
    return replace(chosen, reconnect_grace_s=0.05)


async def _ask(node: Node, **values: object) -> tuple[Client, object]:
    client = await Client.connect(node, TO_LAUNCHER)
    return client, await client.ask(join_message(**values))


async def _reason(node: Node, **values: object) -> str:
    """Return why a launcher is refused; "" if it is not."""
    client, answer = await _ask(node, **values)
    client.close()
    return answer.reason if isinstance(answer, Refused) else ""


@asynccontextmanager
async def _joined_at_last(node: Node, job: str) -> AsyncIterator[None]:
    """Ask until what was promised to another job is free again."""

    async def joined() -> Client | None:
        client, answer = await _ask(node, job=job, **_LARGE)
        if answer == Joined(node.name):
            return client
        client.close()
        return None

    client = await eventually(joined)
    try:
        yield
    finally:
        client.close()


@lived
async def test_of_two_jobs_that_begin_together_and_do_not_fit_one_is_refused_at_once(
    tmp_path: Path,
) -> None:
    async with running(_settings(tmp_path)) as node:
        names = ("first", "second")
        asked = await asyncio.gather(*(_ask(node, job=name, **_LARGE) for name in names))
        answers = dict(zip(names, (answer for _, answer in asked), strict=True))
        (name,) = (name for name, answer in answers.items() if answer == Joined(node.name))
        (refused,) = (answer for answer in answers.values() if isinstance(answer, Refused))
        assert refused.reason == (
            "snapshots of this job take 30.0 MiB on this node (1 ranks x 10.0 MiB x 3 slots) and "
            f"jobs.memory_bytes_max leaves 10.0 MiB (job {name} is promised 30.0 MiB); 3.3 MiB a "
            "rank would fit; save a share in each data-parallel rank, or use fewer ranks on a node"
        )
        assert not await _reason(node, job="small", snapshot_bytes=3 * _MIB, nodes_max=1)
        for client, _ in asked:
            client.close()


@lived
async def test_what_was_promised_to_a_launcher_that_goes_away_is_free_again(
    tmp_path: Path,
) -> None:
    async with running(_settings(tmp_path)) as node:
        async with launcher(node, job="first", **_LARGE):
            assert "job first is promised 30.0 MiB" in await _reason(node, job="next", **_LARGE)
        async with _joined_at_last(node, "next"):
            pass


@lived
async def test_what_a_job_was_promised_and_did_not_ask_for_is_free_once_its_ranks_have_slots(
    tmp_path: Path,
) -> None:
    async with running(_settings(tmp_path)) as node, launcher(node, **_LARGE) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        assert await _reason(node, job="next", **_LARGE)
        async with trainer(node, 2 * _MIB):
            assert not await _reason(node, job="next", **_LARGE)


@lived
async def test_a_rank_may_ask_for_more_than_its_job_was_promised(tmp_path: Path) -> None:
    async with running(_settings(tmp_path)) as node, launcher(node, **_LARGE) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node, 0) as rank:
            assert isinstance(await rank.ask(Reserve(13 * _MIB)), Reserved)


@lived
async def test_replicas_are_promised_until_they_are_there(tmp_path: Path) -> None:
    async with running(_settings(tmp_path)) as node:
        several = {"snapshot_bytes": 5 * _MIB, "nodes_max": 2}
        async with launcher(node, **several) as control:
            node.order(start_generation=plan(1))
            assert isinstance(await control.hear(), Start)
            async with trainer(node, 5 * _MIB):
                reason = await _reason(node, job="next", **_LARGE)
                assert "(job demo holds 15.0 MiB and is promised 15.0 MiB more)" in reason


@pytest.mark.parametrize("how", ["its generation is replaced", "it ends"])
def test_a_promise_ends(how: str, tmp_path: Path) -> None:
    @lived
    async def life() -> None:
        async with running(_settings(tmp_path)) as node, launcher(node, **_LARGE) as control:
            node.order(start_generation=plan(1))
            assert isinstance(await control.hear(), Start)
            assert await _reason(node, job="next", **_LARGE)
            if how == "it ends":
                node.order(end_job=fleet_pb2.EndJob(job="demo"))
            else:
                node.order(start_generation=plan(2))
            assert not await _reason(node, job="next", **_LARGE)

    life()


@lived
async def test_a_promise_outlives_the_agent_and_is_not_made_twice(tmp_path: Path) -> None:
    chosen = replace(_settings(tmp_path), reconnect_grace_s=TIMEOUT_S)
    async with running(chosen) as node, launcher(node, **_LARGE):
        pass
    async with running(chosen) as node:
        # Its launcher has not come back yet.
        assert "job demo is promised 30.0 MiB" in await _reason(node, job="next", **_LARGE)
        async with launcher(node, **_LARGE) as control:
            assert "job demo is promised 30.0 MiB" in await _reason(node, job="next", **_LARGE)
            node.order(start_generation=plan(1))
            assert isinstance(await control.hear(), Start)
    async with running(chosen) as node:
        assert "job demo is promised 30.0 MiB" in await _reason(node, job="next", **_LARGE)
        async with launcher(node, **_LARGE | {"running_generation": 1}), trainer(node, 10 * _MIB):
            assert "job demo holds 30.0 MiB" in await _reason(node, job="next", **_LARGE)


@lived
async def test_a_job_that_announced_nothing_leaves_what_others_were_promised(
    tmp_path: Path,
) -> None:
    async with (
        running(_settings(tmp_path)) as node,
        launcher(node, job="first", **_LARGE),
        launcher(node) as control,
    ):
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node, 0) as rank:
            refused = await rank.ask(Reserve(10 * _MIB))
            assert isinstance(refused, Refused)
            assert refused.reason == (
                "3 x 10.0 MiB of snapshot memory were asked for and jobs.memory_bytes_max leaves "
                "10.0 MiB (job first is promised 30.0 MiB): 3 x 3.3 MiB would fit"
            )
            assert isinstance(await rank.ask(Reserve(3 * _MIB)), Reserved)


@lived
async def test_after_a_fault_a_job_that_runs_comes_before_one_that_waits(tmp_path: Path) -> None:
    async with running(_settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        waits = {"job": "waits", "snapshot_bytes": 11 * _MIB, "nodes_max": 1}
        async with trainer(node, 2 * _MIB), launcher(node, **waits):
            node.order(start_generation=plan(2))
            assert isinstance(await control.hear(), Start)
            async with trainer(node, 5 * _MIB, generation=2):
                pass
