"""The bare server answers an agent as the controller does, so that a whole job runs against it."""

from collections import deque

from transport_agent import Agent
from transport_bare import Peer

from everstep_proto.generated import fleet_pb2


def _talk(agent: Agent, said: deque[fleet_pb2.AgentMessage], peer: Peer) -> list[str]:
    kinds = []
    while said:
        kinds += [agent.take(answer) for answer in peer.answers(said.popleft())]
    return kinds


def test_a_job_starts_steps_and_starts_again_against_the_bare_server() -> None:
    said: deque[fleet_pb2.AgentMessage] = deque()
    peer = Peer()
    agent, other = (Agent(index, 2, lambda _, message: said.append(message)) for index in range(2))
    agent.hello()
    assert _talk(agent, said, peer).count("welcome") == 1
    agent.join()
    _talk(agent, said, peer)
    assert (agent.generation, agent.target) == (1, "n00001")
    agent.complete_step(5)
    assert _talk(agent, said, peer) == ["ack"]
    agent.commit(5)
    assert _talk(agent, said, peer) == []
    agent.receive(5, other)
    assert _talk(agent, said, peer) == ["vault"]
    assert agent.recoverable == 5
    agent.lose_ranks()
    _talk(agent, said, peer)
    assert agent.generation == 2
    assert agent.acknowledged == agent.sequence
