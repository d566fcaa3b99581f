"""Questions of the core about liveness on an agent's stream, and the answers as its events."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_common.reports import FindingRaised, TcpAnswer
from everstep_controller.core.actions import Action, ConfirmSilence, PingAgent
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import (
    AgentAnswered,
    AgentLeaving,
    Event,
    JournaledEvent,
    NodeDisconnected,
    PeerJudged,
    Reported,
)
from everstep_controller.core.model.state import State
from everstep_proto.generated import fleet_pb2
from fakes.agent_stream import agent_stream
from fakes.controllers import controller
from fakes.waits import eventually

pytestmark = pytest.mark.timeout(60)

_PING = PingAgent(id="node-1/ping/7", node="node-1", reason="it is silent")
_CONFIRM = ConfirmSilence(
    id="node-2/silent/7",
    node="node-1",
    reason="node-2 is silent",
    peer="node-2",
    peer_address="10.0.0.2:7",
    peer_bulk_address="10.0.0.2:8",
)
_LIVENESS = (AgentAnswered, AgentLeaving, NodeDisconnected, PeerJudged)


def asking_core(taken: list[Event]) -> Callable[[State | None], Core]:
    """Return a core that asks when a finding comes, and whose events are kept."""

    class AskingCore(Core):
        def handle(self, event: JournaledEvent, now_ns: int) -> list[Action]:
            actions = super().handle(event, now_ns)
            if isinstance(event, _LIVENESS):
                taken.append(event)
            asks = isinstance(event, Reported) and isinstance(event.report, FindingRaised)
            return [*actions, _PING, _CONFIRM] if asks else actions

    return AskingCore


def test_an_agent_is_pinged_and_asked_about_a_peer_and_its_answers_reach_the_core(
    tmp_path: Path,
) -> None:
    taken: list[Event] = []

    async def scenario() -> None:
        async with (
            controller(tmp_path, asking_core(taken)) as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            await agent.healthy()
            await agent.finding(2)
            assert (await agent.wait_for("ping")).ping.ping_id == _PING.id
            asked = (await agent.wait_for("confirm")).confirm
            peer = fleet_pb2.WatchedPeer(node="node-2", liveness_address="10.0.0.2:7")
            assert asked == fleet_pb2.ConfirmPeer(
                confirm_id=_CONFIRM.id, peer=peer, bulk_address="10.0.0.2:8"
            )
            await agent.send(pong=fleet_pb2.Pong(ping_id=_PING.id))
            refused = fleet_pb2.TCP_ANSWER_REFUSED
            evidence = fleet_pb2.PeerEvidence(
                confirm_id=_CONFIRM.id, peer="node-2", tcp=refused, late_ns=5
            )
            await agent.send(evidence=evidence)
            await eventually(lambda: len(taken) == 2)

    asyncio.run(scenario())
    assert taken[:2] == [
        AgentAnswered("node-1", _PING.id),
        PeerJudged("node-1", "node-2", _CONFIRM.id, udp=False, tcp=TcpAnswer.REFUSED, late_ns=5),
    ]


def test_the_last_word_of_an_agent_is_taken_before_the_end_of_its_stream(tmp_path: Path) -> None:
    taken: list[Event] = []

    async def scenario() -> None:
        async with (
            controller(tmp_path, asking_core(taken)) as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            await agent.healthy()
            await agent.send(going_away=fleet_pb2.GoingAway(reason="told to stop"))
            await agent.call.done_writing()
            await agent.end()
            await eventually(lambda: len(taken) == 2)

    asyncio.run(scenario())
    assert taken == [AgentLeaving("node-1", "told to stop"), NodeDisconnected("node-1")]
