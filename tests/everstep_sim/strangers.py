"""Simulated strangers: agents that say Hello and are not what the controller should take them for.

A twin has the name of a node; a stranger is of another cluster, or has seen more than this one.
Each knocks again and again until its time is over, and answers pings if it was taken.
"""

from dataclasses import replace

from everstep_common.reports import JobOnNode
from everstep_controller.core import events
from everstep_controller.core.nodes.agent_identity import ANSWER_NS
from everstep_sim.fleet import JOB, REFUSED_S, SimulatedFleet
from everstep_sim.timeline import SECOND, VirtualTime

CLUSTER = "another"
_HIGH = 1000


class Stranger:
    """One agent outside the cluster, from now on for a while."""

    def __init__(
        self, fleet: SimulatedFleet, time: VirtualTime, hello: events.NodeConnected, for_s: float
    ) -> None:
        self.hello = hello
        self.taken = False
        self._fleet = fleet
        self._time = time
        self._until_ns = time.now_ns + int(for_s * SECOND)
        time.after(for_s, self._end)
        self._knock()

    def answers(self) -> bool:
        """Return whether it has the name, and says so when it is asked."""
        return self.taken and self._time.now_ns < self._until_ns

    def _knock(self) -> None:
        if self._time.now_ns >= self._until_ns:
            return
        if not self._fleet.listens():
            self._time.soon(*REFUSED_S, self._knock)
        elif not self._has_name():
            self.taken = self._fleet.say_hello(self.hello)
            if self.taken:
                self._fleet.lose_name(self.hello.node, self)
            wait_s = ANSWER_NS / SECOND + 0.1 if self._fleet.contends(self.hello) else None
            if wait_s is not None:
                self._time.after(wait_s, self._knock)
                return
        self._time.soon(*REFUSED_S, self._knock)

    def _has_name(self) -> bool:
        return self.taken and self._fleet.agent_of(self.hello.node) == self.hello.outbox

    def _end(self) -> None:
        if self._has_name():
            self._fleet.post(events.NodeDisconnected(self.hello.node))
        self.taken = False


def twin(fleet: SimulatedFleet, time: VirtualTime, name: str, for_s: float) -> Stranger:
    """Give another agent the name of a node for a while."""
    hello = fleet.nodes[name].hello()
    number = int(time.now_ns)
    other = replace(
        hello,
        outbox=f"{name}/twin-{number}",
        boot_id=f"{name}-twin-{number}",
        highest_term=0,
        jobs=(),
        cluster_id="",
        address="elsewhere",
    )
    return Stranger(fleet, time, other, for_s)


def foreigner(fleet: SimulatedFleet, time: VirtualTime, name: str, for_s: float) -> Stranger:
    """Have the agent of another cluster say that it is a node."""
    hello = replace(_hello(name, highest_term=_HIGH), cluster_id=CLUSTER)
    return Stranger(fleet, time, hello, for_s)


def liar(
    fleet: SimulatedFleet, time: VirtualTime, name: str, for_s: float, *, by_generation: bool
) -> Stranger:
    """Have an agent name a term, or a generation, that no journal of this cluster has."""
    if by_generation:
        return Stranger(fleet, time, _hello(name, jobs=(JobOnNode(JOB, _HIGH, True),)), for_s)
    return Stranger(fleet, time, _hello(name, highest_term=_HIGH), for_s)


def _hello(
    name: str, *, highest_term: int = 0, jobs: tuple[JobOnNode, ...] = ()
) -> events.NodeConnected:
    return events.NodeConnected(
        node=name,
        boot_id=f"{name}-stray",
        agent_version="0.1.0",
        outbox=f"{name}/stray",
        highest_term=highest_term,
        host=name,
        jobs=jobs,
    )
