"""Liveness in virtual time: faults of a simulated cluster around the real core."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from liveness_rows import Round, Row

from everstep_controller.core import events
from everstep_controller.core.model.node import NodeState
from everstep_sim.cluster import Shape, SimulatedCluster
from everstep_sim.faults import ALL_CHANNELS, Faults
from everstep_sim.network import ANYBODY, CONTROLLER, Transport
from everstep_sim.timeline import SECOND

_SMALL = Shape(nodes=6, nodes_min=3, nodes_max=3, steps=100_000, domains=3)
_RACKS = Shape(nodes=24, nodes_min=3, nodes_max=4, steps=100_000, domains=4)
# When a fault comes: the job has made some steps by then. Each seed has another moment between two
# probes.
_FAULT_S, _PHASE_S = 20.0, 0.37

# Breaks something, and returns the nodes that nobody can reach afterwards; none: it is a member of
# the job that is broken, and can be reached.
Break = Callable[[Faults], Collection[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault in virtual time, and what is timed: a loss, a doubt, a finding, or nothing."""

    what: str
    break_it: Break
    verdict: str = ""
    target_s: float | None = None
    lasts_s: float = 60.0
    shape: Shape = _SMALL
    seeds: int = 10


class _Observer:
    """What became of the nodes that were broken, and of the others."""

    def __init__(self, fault_s: float) -> None:
        self._fault_s = fault_s
        self.at_ns: dict[str, dict[str, int]] = {}

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        del event
        for name, node in cluster.controller.core.state.nodes.items():
            if not (
                node.liveness.silent_since_ns
                or node.health.findings
                or node.state is NodeState.LOST
            ):
                continue
            said = [held.finding.condition for held in node.health.findings.values()]
            said += ["lost"] if node.state is NodeState.LOST else []
            said += ["doubtful"] if node.doubtful else []
            known = self.at_ns.setdefault(name, {})
            for word in said:
                known.setdefault(word, cluster.time.now_ns)

    def first_s(self, word: str, names: Collection[str]) -> float | None:
        """Return when the last of these nodes came to a verdict, after the fault."""
        found = [self.at_ns.get(name, {}).get(word) for name in names]
        known = [at_ns for at_ns in found if at_ns is not None]
        if not known or len(known) < len(found):
            return None
        return max(known) / SECOND - self._fault_s


def measured(case: Case) -> Row:
    """Return a row, one round for each seed."""
    return Row(
        what=case.what,
        how="virtual time",
        verdict=case.verdict,
        target_s=case.target_s,
        rounds=[_round(case, seed) for seed in range(1, case.seeds + 1)],
    )


def _round(case: Case, seed: int) -> Round:
    fault_s = _FAULT_S + _PHASE_S * seed % 1
    seen, broken, gone = _Observer(fault_s), list[str](), list[str]()
    cluster = SimulatedCluster(seed, case.shape, seen)

    def break_it() -> None:
        gone.extend(case.break_it(Faults(cluster)))
        broken.extend(gone or [_member(Faults(cluster))])

    cluster.time.after(fault_s, break_it)
    cluster.run(fault_s + case.lasts_s)
    assert cluster.job is not None, "the job has begun"
    lost = {name for name, said in seen.at_ns.items() if "lost" in said}
    restarts = 0 if lost.intersection(gone) else cluster.job.generation.number - 1
    times_s = seen.first_s(case.verdict, broken) if case.verdict else None
    return Round(times_s, len(lost.difference(gone)), restarts)


def _member(faults: Faults) -> str:
    job = faults.cluster.job
    assert job is not None, "the job has begun"
    return job.generation.members[1]


# --- faults --------------------------------------------------------------------------------------


def _lose_power(faults: Faults) -> Collection[str]:
    name = _member(faults)
    faults.lose_power([name])
    return [name]


def _lose_quarter(faults: Faults) -> Collection[str]:
    rack = [name for name in faults.names if faults.domain_of(name) == "rack-0"]
    faults.lose_power(rack)
    return rack


def _cut_quarter(faults: Faults) -> Collection[str]:
    rack = [name for name in faults.names if faults.domain_of(name) == "rack-0"]
    for name in rack:
        faults.cluster.cut_off(name)
    return rack


def _freeze(for_s: float) -> Break:
    def freeze(faults: Faults) -> Collection[str]:
        name = _member(faults)
        faults.freeze_machine(name, for_s)
        return [name] if for_s > 5 else []

    return freeze


def _cut_but_stepping(faults: Faults) -> Collection[str]:
    name = _member(faults)
    faults.cut_pair((Transport.UDP, Transport.TCP), name, ANYBODY, 50)
    faults.cut_pair((Transport.STREAM,), name, CONTROLLER, 50)
    return []


def _cut_watchers(faults: Faults) -> Collection[str]:
    name = _member(faults)
    for other in [one for one in faults.names if one != name][:3]:
        faults.cut_pair((Transport.UDP, Transport.TCP), name, other, 50)
    return []


def _cut_one(faults: Faults) -> Collection[str]:
    job = faults.cluster.job
    assert job is not None, "the job has begun"
    name = next(name for name in faults.names if name not in job.generation.members)
    faults.cut_pair(ALL_CHANNELS, name, ANYBODY, 50)
    faults.cut_pair((Transport.STREAM,), name, CONTROLLER, 50)
    return [name]


def _lose_datagrams(faults: Faults) -> Collection[str]:
    faults.cluster.fleet.network.udp_loss = 0.5
    return []


def _controller_cut_twice(faults: Faults) -> Collection[str]:
    faults.cut_controller(90)
    faults.later(200, partial(faults.cut_controller, 90))
    return []


def _on_member(verb: Callable[[Faults, str], None]) -> Break:
    def break_it(faults: Faults) -> Collection[str]:
        verb(faults, _member(faults))
        return []

    return break_it


def _quietly(verb: Callable[[Faults], None]) -> Break:
    def break_it(faults: Faults) -> Collection[str]:
        verb(faults)
        return []

    return break_it


def _stall_thrice(faults: Faults) -> None:
    for number in range(3):
        faults.later(10.0 * number, partial(faults.stall_controller, 6.0))


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "a-gone": Case(
            what="(a) an agent is gone, its kernel refuses",
            break_it=_on_member(lambda f, n: f.restart_agent(n, 90, announced=False)),
            verdict="doubtful",
            target_s=5.0,
        ),
        "b-power": Case(
            what="(b) a node loses its power",
            break_it=_lose_power,
            verdict="lost",
            target_s=6.0,
        ),
        "b-cut": Case(
            what="(b) a node of which no packet comes through",
            break_it=_cut_one,
            verdict="lost",
            target_s=6.0,
        ),
        "c-steps": Case(
            what="(c) nothing of a member answers, and its job makes steps with it",
            break_it=_cut_but_stepping,
            verdict="doubtful",
        ),
        "restart-virtual": Case(
            what="an agent restarts, away 10 s",
            break_it=_on_member(lambda f, n: f.restart_agent(n, 10)),
        ),
        "udp-loss": Case(
            what="half of all datagrams lost for an hour, 24 nodes",
            break_it=_lose_datagrams,
            lasts_s=3600,
            shape=_RACKS,
            seeds=1,
        ),
        "controller-cut": Case(
            what="the controller's network away for 90 s, twice",
            break_it=_controller_cut_twice,
            lasts_s=400,
            seeds=5,
        ),
        "stalls-virtual": Case(
            what="the controller's loop stands still for 6 s, three times",
            break_it=_quietly(_stall_thrice),
        ),
        "away-virtual": Case(
            what="the controller is away for 200 s",
            break_it=_quietly(lambda f: f.cluster.restart_controller(200)),
            lasts_s=350,
            seeds=5,
        ),
        "watchers": Case(
            what="a watcher and two confirmers are cut off from a node",
            break_it=_cut_watchers,
        ),
        "quarter-power": Case(
            what="a quarter of the fleet, one domain, loses its power",
            break_it=_lose_quarter,
            verdict="lost",
            target_s=5.0,
            lasts_s=30,
            shape=_RACKS,
            seeds=5,
        ),
        "quarter-cut": Case(
            what="a quarter of the fleet, one domain, is cut off",
            break_it=_cut_quarter,
            verdict="lost",
            target_s=5.0,
            lasts_s=30,
            shape=_RACKS,
            seeds=5,
        ),
        "frozen-virtual": Case(
            what="a machine is frozen for 2.9 s",
            break_it=_freeze(2.9),
        ),
        "frozen-long": Case(
            what="a machine is frozen for a minute",
            break_it=_freeze(60),
            verdict="lost",
            target_s=6.0,
        ),
    }
)
