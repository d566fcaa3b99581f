"""Whose Hello a real controller takes: twins by name, agents of another cluster, an old journal."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from everstep_agent.backoff import Backoff
from everstep_agent.cluster import ClusterMembership
from everstep_agent.persistence.agent_database import Remembered
from everstep_agent.persistence.disk_store import LostStore
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.uplink import Uplink, UplinkSettings
from everstep_common.clock import stamp_clock
from everstep_common.config import ConfigError
from everstep_controller.core.dispatch.core import Core
from everstep_controller.runtime.cluster_file import Cluster, ClusterFile
from everstep_controller.runtime.controller_findings import ShellTrouble, open_controller_findings
from everstep_controller.service import Controller, Options
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import config, controller
from fakes.local_secret import access_to
from fakes.waits import eventually


def findings(running: Controller) -> dict[str, str]:
    """Return the sentences of the controller's own findings, by condition."""
    found = open_controller_findings(running.runtime.state, ShellTrouble(), lambda *_: 0)
    return {one.finding.condition: one.finding.message for one in found}


async def answer_ping(agent: AgentStream) -> None:
    """Answer the next question of the controller for the loop of this agent."""
    ping = (await agent.wait_for("ping")).ping
    await agent.send(pong=fleet_pb2.Pong(ping_id=ping.ping_id))


# --- two agents of one name ----------------------------------------------------------------------


def test_a_second_agent_of_a_name_is_refused_while_the_first_one_answers(tmp_path: Path) -> None:
    async def scenario() -> tuple[tuple[grpc.StatusCode, str], str, int]:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as first,
        ):
            await first.healthy()
            answering = asyncio.create_task(answer_ping(first))
            async with agent_stream(running.port, "node-1") as second:
                await second.send_hello(outbox="another", boot="another")
                refused = await second.end()
            await answering
            before = running.runtime.seq
            async with agent_stream(running.port, "node-1") as again:
                await again.send_hello(outbox="another", boot="another")
                assert await again.end() == refused
            journaled = running.runtime.seq - before
            # It was no reboot: what the first one says is still taken.
            await first.finding(2)
            await first.acknowledged(2)
            assert running.runtime.state.nodes["node-1"].spec.outbox == "outbox-node-1"
            return refused, findings(running)["NodeNameTaken"], journaled

    (code, sentence), finding, journaled = asyncio.run(scenario())
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert sentence == finding
    assert "two agents have the name node-1: the one at 127.0.0.1 keeps it" in sentence
    assert "give one of them another 'node' in its agent.toml, or stop it" in sentence
    assert journaled == 0, "one that knocks for ever does not fill the journal"


def test_the_name_goes_to_the_second_agent_when_the_first_one_does_not_answer(
    tmp_path: Path,
) -> None:
    async def scenario() -> tuple[float, str]:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as hung,
            agent_stream(running.port, "node-1") as installed_anew,
        ):
            await hung.healthy()
            began_s = asyncio.get_running_loop().time()
            await installed_anew.hello(outbox="another", boot="another")
            took_s = asyncio.get_running_loop().time() - began_s
            await installed_anew.finding(1)
            await installed_anew.acknowledged(1)
            assert findings(running) == {}
            return took_s, (await hung.end())[1]

    took_s, sentence = asyncio.run(scenario())
    assert 1.0 <= took_s < 3.0
    assert "newer stream" in sentence


def test_one_that_is_just_away_keeps_its_name_and_one_that_stays_away_loses_it(
    tmp_path: Path,
) -> None:
    settings = config(tmp_path)
    settings = replace(settings, core=replace(settings.core, agent_return_ns=2_000_000_000))

    async def scenario() -> tuple[str, str, str]:
        running = Controller.open(settings, Options(Core))
        await running.start()
        try:
            async with agent_stream(running.port, "node-1") as first:
                await first.healthy()
            async with agent_stream(running.port, "node-1") as second:
                await second.send_hello(outbox="another", boot="another")
                async with agent_stream(running.port, "node-1") as back:
                    await back.hello()
                    refused = (await second.end())[1]
                    mine = running.runtime.state.nodes["node-1"].spec.outbox
            async with agent_stream(running.port, "node-1") as third:
                await third.hello(outbox="third", boot="third")
                return refused, mine, running.runtime.state.nodes["node-1"].spec.outbox
        finally:
            await running.stop()

    refused, mine, later = asyncio.run(scenario())
    assert "two agents have the name node-1" in refused
    assert mine == "outbox-node-1"
    assert later == "third"


# --- clusters ------------------------------------------------------------------------------------


def test_an_agent_belongs_to_the_cluster_of_its_first_controller_and_no_other_takes_it(
    tmp_path: Path,
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()

    async def scenario() -> tuple[str, str, str, tuple[str, ...]]:
        async with controller(here) as mine, agent_stream(mine.port, "node-1") as agent:
            cluster = (await agent.hello()).cluster_id
        async with controller(there) as other, agent_stream(other.port, "node-2") as own:
            await own.healthy()
            async with agent_stream(other.port, "node-1") as stranger:
                await stranger.send_hello(term=99, cluster_id=cluster)
                refused = (await stranger.end())[1]
            state = other.runtime.state
            assert state.halted == ""
            return cluster, refused, findings(other)["AgentQuarantined"], tuple(state.nodes)

    cluster, refused, finding, nodes = asyncio.run(scenario())
    assert cluster
    assert ClusterFile(here / "journal.cluster").read() == Cluster(cluster, 1)
    assert refused == finding
    assert f"its agent belongs to {cluster}" in refused
    assert "everstep-agent leave-cluster" in refused
    assert nodes == ("node-2",)


def _lose(*names: str) -> Callable[[Path], None]:
    def lose(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return lose


@pytest.mark.parametrize(
    "lose",
    [
        _lose(),
        _lose("journal.cluster"),
        _lose("journal.sqlite"),
        _lose("journal.sqlite", "journal.cluster"),
    ],
    ids=["nothing", "the file", "the journal", "both"],
)
def test_a_recovery_goes_on_in_the_cluster_of_its_agents(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    settings = config(tmp_path)
    settings = replace(settings, core=replace(settings.core, recover_listen_ns=1_000_000_000))

    async def first() -> str:
        async with controller(tmp_path) as running, agent_stream(running.port, "node-1") as agent:
            return (await agent.hello()).cluster_id

    async def recovered(cluster: str) -> str:
        running = Controller.open(settings, Options(Core, recover_by="ann"))
        await running.start()
        try:
            async with agent_stream(running.port, "node-1") as agent:
                welcome = await agent.hello(term=1, cluster_id=cluster)
                assert welcome.cluster_id == "", "nobody is to adopt what may be wrong"
                assert "acts again" in (await agent.end())[1]
            async with agent_stream(running.port, "node-1") as agent:
                return (await agent.hello(term=1, cluster_id=cluster)).cluster_id
        finally:
            await running.stop()

    cluster = asyncio.run(first())
    lose(tmp_path)
    assert asyncio.run(recovered(cluster)) == cluster
    kept = ClusterFile(tmp_path / "journal.cluster").read()
    assert kept is not None
    assert kept.id == cluster


def test_a_journal_that_is_older_than_the_cluster_file_halts_before_any_agent_speaks(
    tmp_path: Path,
) -> None:
    async def scenario() -> tuple[str, str]:
        async with controller(tmp_path):
            pass
        file = ClusterFile(tmp_path / "journal.cluster")
        kept = file.read()
        assert kept is not None
        file.write(replace(kept, term=7))
        async with controller(tmp_path) as running:
            return running.runtime.state.halted, findings(running)["ControllerHalted"]

    halted, finding = asyncio.run(scenario())
    assert (
        "this journal is old, or another controller runs: the cluster file has seen term 7"
        in halted
    )
    assert halted in finding
    kept = ClusterFile(tmp_path / "journal.cluster").read()
    assert kept is not None
    assert kept.term == 7


def test_a_journal_and_a_file_of_two_clusters_start_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller(tmp_path):
            pass
        ClusterFile(tmp_path / "journal.cluster").write(Cluster("another", 1))
        async with controller(tmp_path):
            pass

    with pytest.raises(ConfigError, match="the cluster file of another"):
        asyncio.run(scenario())


# --- the agent's side ----------------------------------------------------------------------------


def test_a_refused_agent_says_so_once_and_knocks_seldom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> tuple[int, str]:
        async with controller(tmp_path) as running:
            uplink = _uplink(running.port, ClusterMembership("another"))
            knocks = 0

            def hello() -> fleet_pb2.Hello:
                nonlocal knocks
                knocks += 1
                return _hello("another")

            task = asyncio.create_task(uplink.run(hello, _Listener()))
            await eventually(lambda: knocks >= 2)
            task.cancel()
            return knocks, uplink.trouble

    knocks, trouble = asyncio.run(scenario())
    assert knocks == 2
    assert "everstep-agent leave-cluster" in trouble
    warned = [one for one in caplog.records if "leave-cluster" in one.getMessage()]
    assert len([one for one in warned if one.name == "everstep_agent.uplink"]) == 1


def test_an_agent_adopts_a_cluster_once_and_keeps_it(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[str], str]:
        kept: list[str] = []
        async with controller(tmp_path) as running:
            membership = ClusterMembership("", kept.append)
            uplink = _uplink(running.port, membership)
            task = asyncio.create_task(
                uplink.run(lambda: _hello(membership.cluster_id), _Listener())
            )
            await eventually(lambda: uplink.streams >= 1)
            uplink.renew()
            await eventually(lambda: uplink.streams >= 2)
            task.cancel()
            return kept, running.runtime.state.cluster_id

    kept, cluster = asyncio.run(scenario())
    assert kept == [cluster]


_STAMP = stamp_clock()


class _Listener:
    """Listener that needs to hear nothing."""

    def on_welcome(self, welcome: fleet_pb2.Welcome, forgotten: bool) -> None:
        pass

    def on_halted(self) -> None:
        pass

    def on_away(self) -> None:
        pass

    def on_message(self, message: fleet_pb2.ControllerMessage) -> None:
        pass


def _hello(cluster_id: str) -> fleet_pb2.Hello:
    return fleet_pb2.Hello(
        node="node-1",
        agent_version="0.1.0",
        outbox="outbox-1",
        stamp=to_wire(_STAMP(), fleet_pb2.Stamp),
        host="127.0.0.1",
        cluster_id=cluster_id,
    )


def _uplink(port: int, cluster: ClusterMembership) -> Uplink:
    settings = UplinkSettings(controllers=(access_to(port),), connect_timeout_s=5.0, silence_s=30.0)
    outbox = Outbox(LostStore("test"), Remembered("outbox-1"), _STAMP, 100)
    return Uplink(settings, outbox, _STAMP, Backoff(random.Random(1), 0.02, 0.1), cluster)
