"""Generator of the transport benchmark: a fleet of agents in one process, each with its stream.

Arguments: port of loopback, number of agents, agents of a relay (1: each has its own connection),
file of the controller's secret.
Takes a command a line, and answers each with a line of JSON: what was sent and received by kind.
"""

import heapq
import json
import os
import selectors
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

from transport_agent import SAMPLE_S, Agent
from transport_http2 import Http2Stream, StreamEndedError
from transport_relay import pack, unpack

from everstep_proto.generated import fleet_pb2
from everstep_proto.local.secret import read_secret

_PATH, _RELAY_PATH = "/everstep.fleet.v1.Fleet/Connect", "/everstep.bench.Relay/Connect"
_PATIENCE_S = 240.0
# Hellos without a Welcome: a ramp, not a storm.
_RAMP = 100
# So many agents speak before answers are read again.
_SLICE = 32
# What a relay gathers for so long goes out together.
_RELAY_S = 0.1
# Of a step: until its first copies are verified, until all here are, and until replicas are.
_TAIL_S = 2.0
_COMMIT_S, _COMMIT_REST_S, _RECEIVE_S = 0.3, 0.6, 0.9


class Link:
    """Connection of one agent, or of a relay for several."""

    def __init__(self, agents: Sequence[Agent], port: int, secret: str, *, relay: bool) -> None:
        self.agents = agents
        # The server is going to end.
        self.may_end = False
        self.stream = Http2Stream(port, _RELAY_PATH if relay else _PATH, secret)
        self._relay = relay
        self._first = agents[0].index
        self._waiting: list[tuple[int, bytes]] = []

    def send(self, agent: Agent, message: bytes) -> bool:
        """Send a message, or keep it until `flush`; return whether it is the first that is kept."""
        if not self._relay:
            self.stream.send(message)
            return False
        self._waiting.append((agent.index - self._first, message))
        return len(self._waiting) == 1

    def flush(self) -> None:
        """Send what is kept."""
        waiting, self._waiting = self._waiting, []
        self.stream.send(pack(waiting))

    def receive(self) -> Iterator[tuple[Agent, fleet_pb2.ControllerMessage]]:
        """Yield what has come."""
        for payload in self.stream.receive():
            if self._relay:
                for place, message in unpack(payload):
                    yield self.agents[place], fleet_pb2.ControllerMessage.FromString(message)
            else:
                yield self.agents[0], fleet_pb2.ControllerMessage.FromString(payload)


class Fleet:
    """All agents, and the loop in which they speak."""

    def __init__(self, port: int, nodes: int, per_relay: int, *, secret: str) -> None:
        self._port = port
        self._secret = secret
        self._per_relay = per_relay
        self.agents = [Agent(index, nodes, self._say) for index in range(nodes)]
        self._by_name = {agent.name: agent for agent in self.agents}
        self._links: dict[int, Link] = {}
        self._selector = selectors.EpollSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._commands = bytearray()
        self._heard_s = 0.0
        # When the steady state that was asked for is over.
        self._ends_s = 0.0
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self._selector.register(0, selectors.EVENT_READ)

    # --- the loop --------------------------------------------------------------------------------

    def serve(self) -> None:
        """Take commands until standard input ends."""
        while (line := self._next_command()) is not None:
            self.sent.clear()
            self.received.clear()
            began = time.monotonic()
            self._obey(*line.split())
            told = {"seconds": time.monotonic() - began, "sent": self.sent}
            print(json.dumps(told | {"received": self.received}), flush=True)

    def _next_command(self) -> str | None:
        while b"\n" not in self._commands:
            if self._turn(1.0):
                said = os.read(0, 4096)
                if not said:
                    return None
                self._commands += said
        line, _, self._commands = self._commands.partition(b"\n")
        return line.decode()

    def _turn(self, wait_s: float) -> bool:
        """Take what has come and do what is due; return whether there is a command."""
        now = time.monotonic()
        if self._timers:
            wait_s = min(wait_s, max(0.0, self._timers[0][0] - now))
        commanded = False
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                commanded = True
                continue
            self._receive_from(key.data)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
        return commanded

    def _receive_from(self, link: Link) -> None:
        try:
            for agent, message in link.receive():
                kind = agent.take(message)
                self.received[kind] += 1
                if kind != "time_request":
                    self._heard_s = time.monotonic()
        except (StreamEndedError, OSError):
            self._selector.unregister(link.stream)
            link.stream.close()
            if link.may_end:
                return
            # gRPC cancels a stream that a busy server did not look at for long: agents come again.
            if any(agent.welcomed for agent in link.agents):
                raise
            self._open(link.agents[0].index // self._per_relay)

    def _until(self, what: str, done: Callable[[], bool], patience_s: float = _PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not done():
            self._turn(0.05)
            if time.monotonic() > deadline:
                raise SystemExit(f"{what}: not within {patience_s:g} s; {self.received}")

    def _after(self, delay_s: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._numbers), work))

    def _say(self, agent: Agent, message: fleet_pb2.AgentMessage) -> None:
        body = message.WhichOneof("body") or ""
        self.sent[(message.record.WhichOneof("body") or "") if body == "record" else body] += 1
        link = self._links[agent.index // self._per_relay]
        if link.send(agent, message.SerializeToString()):
            self._after(_RELAY_S, link.flush)

    def _each(self, speak: Callable[[Agent], None]) -> None:
        """Have all agents speak at once, as far as one process can."""
        for agent in self.agents:
            speak(agent)
            if agent.index % _SLICE == _SLICE - 1:
                self._turn(0.0)

    # --- what is commanded -----------------------------------------------------------------------

    def _obey(self, command: str, *words: str) -> None:
        commands: dict[str, Callable[..., None]] = {
            "connect": self._connect,
            "let_go": self._let_go,
            "quiet": self._quiet,
            "join": self._join,
            "progress": self._progress,
            "vault": self._vault,
            "exits": self._exits,
            "steady": self._steady,
            "idle": self._idle,
        }
        commands[command](*map(float, words))

    def _connect(self) -> None:
        for number in range(0, len(self.agents), self._per_relay):
            self._open(number // self._per_relay)
            self._wait_for_welcomes(number + self._per_relay - _RAMP)
        self._until("Welcome", lambda: all(agent.welcomed for agent in self.agents))

    def _open(self, number: int) -> None:
        """Open the stream of an agent, or of a relay for several, and say Hello."""
        first = number * self._per_relay
        agents = self.agents[first : first + self._per_relay]
        link = Link(agents, self._port, self._secret, relay=self._per_relay > 1)
        self._links[number] = link
        self._selector.register(link.stream, selectors.EVENT_READ, link)
        for agent in agents:
            agent.hello()

    def _wait_for_welcomes(self, number: int) -> None:
        self._until("Welcome", lambda: self.received["welcome"] >= number)

    def _let_go(self) -> None:
        """Do not mind that the server ends; what is due then is not sent any more."""
        for link in self._links.values():
            link.may_end = True
        self._timers.clear()

    def _quiet(self, seconds: float) -> None:
        """Return when so long nothing has come but questions for the time."""
        self._heard_s = time.monotonic()
        self._until("quiet", lambda: time.monotonic() - self._heard_s > seconds)

    def _idle(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        self._until("idle", lambda: time.monotonic() > ends, seconds + 60)

    def _join(self) -> None:
        self._each(Agent.join)
        self._until("start", lambda: all(agent.generation for agent in self.agents))
        self._until("acknowledgements", self._all_acknowledged)
        self._progress()
        self._until("directives", lambda: all(agent.target for agent in self.agents))

    def _progress(self) -> None:
        """Have all agents tell of a step; return when it is acknowledged."""
        step = self.agents[0].step + 1
        self._each(lambda agent: agent.complete_step(step))
        self._until("acknowledgements", self._all_acknowledged)

    def _vault(self) -> None:
        """Have all agents tell of the copies of a step; return when all know it is recoverable."""
        step = self.agents[0].step
        self._commit(step)
        self._commit_rest(step)
        self._receive(step)
        self._until("directives", lambda: all(a.recoverable >= step for a in self.agents))

    def _exits(self) -> None:
        """Have all ranks die; return when all ranks run again."""
        generation = self.agents[0].generation
        self._each(Agent.lose_ranks)
        self._until("start", lambda: all(a.generation > generation for a in self.agents))
        self._until("acknowledgements", self._all_acknowledged)

    def _steady(self, seconds: float, step_s: float) -> None:
        """Train for so long: samples of all agents out of phase, and steps of all together."""
        self._ends_s = time.monotonic() + seconds
        for agent in self.agents:
            self._after(agent.index / len(self.agents) * SAMPLE_S, self._sampler(agent))
        self._train(step_s)
        self._idle(seconds + _TAIL_S)

    def _sampler(self, agent: Agent) -> Callable[[], None]:
        def sample() -> None:
            if time.monotonic() < self._ends_s:
                self._after(SAMPLE_S, sample)
                agent.sample()

        return sample

    def _train(self, step_s: float) -> None:
        if time.monotonic() > self._ends_s:
            return
        step = self.agents[0].step + 1
        self._after(step_s, lambda: self._train(step_s))
        self._each(lambda agent: agent.complete_step(step))
        self._after(_COMMIT_S, lambda: self._commit(step))
        self._after(_COMMIT_REST_S, lambda: self._commit_rest(step))
        self._after(_RECEIVE_S, lambda: self._receive(step))

    def _commit(self, step: int) -> None:
        self._each(lambda agent: agent.commit(step))

    def _commit_rest(self, step: int) -> None:
        self._each(lambda agent: agent.commit_rest(step))

    def _receive(self, step: int) -> None:
        for agent in self.agents:
            target = self._by_name.get(agent.target)
            if target is not None:
                target.receive(step, agent)
            if agent.index % _SLICE == _SLICE - 1:
                self._turn(0.0)

    def _all_acknowledged(self) -> bool:
        return all(agent.acknowledged == agent.sequence for agent in self.agents)


if __name__ == "__main__":
    fleet = Fleet(*map(int, sys.argv[1:4]), secret=read_secret(Path(sys.argv[4])).value)
    print(json.dumps("ready"), flush=True)
    fleet.serve()
