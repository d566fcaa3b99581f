"""Simulated slow nodes: their ranks work longer in each step, and tell so, or lie.

The judges are the real ones; what they are told comes once a second of virtual time, and is lost
with the controller. What agents find of a node's hardware is apart from it.
"""

import random
from dataclasses import dataclass, field

from everstep_common.compute_time import ComputeTime
from everstep_common.reports import RankColumns
from everstep_common.reports.rank_columns import RankRow, pack_ranks
from everstep_controller.core import events
from everstep_controller.core.jobs.lifecycle import STEPPING
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.planned.swaps import slow_parts
from everstep_controller.slow.live import LivePlaces, LiveSlowness, news_of
from everstep_sim.cluster import SimulatedCluster
from everstep_sim.timeline import SECOND

_TICK_S = 1.0
_OWN_NS = 200_000_000
_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class SlowTime:
    """Time in which the ranks of a node tell that they work longer; seconds of virtual time."""

    node: str
    factor: float = 1.3
    begin_s: float = 0.0
    end_s: float = 1e9
    # Only the ranks of this job tell so; "": those of all.
    job: str = ""

    def concerns(self, node: str, job: str, now_s: float) -> bool:
        """Return whether a node's ranks of a job tell it now."""
        return self.node == node and self.job in ("", job) and self.begin_s <= now_s < self.end_s


@dataclass(slots=True)
class _Watched:
    """What the controller has seen of one generation, and how far its ranks are."""

    live: LiveSlowness
    own: dict[str, ComputeTime] = field(default_factory=dict)


class Slowness:
    """Slow nodes of a cluster, and the monitor that finds them."""

    def __init__(self, cluster: SimulatedCluster, seed: int, slow: list[SlowTime]) -> None:
        self._cluster = cluster
        self._slow = slow
        self._rng = random.Random(seed)
        # By term of the controller, job and generation.
        self._watched: dict[tuple[int, str, int], _Watched] = {}
        # Nodes that were named, by job.
        self.named: dict[str, set[str]] = {}
        cluster.time.after(_TICK_S, self._tick)

    def _tick(self) -> None:
        controller = self._cluster.controller
        if controller.listens:
            for job in list(controller.core.state.jobs.values()):
                if job.state in STEPPING:
                    self._judge(job)
        self._cluster.time.after(_TICK_S, self._tick)

    def _judge(self, job: JobRecord) -> None:
        state = self._cluster.controller.core.state
        key = (state.term, job.id, job.generation.number)
        watched = self._watched.get(key)
        if watched is None:
            members = tuple(job.generation.members)
            domains = tuple(state.nodes[name].spec.domain for name in members)
            watched = _Watched(LiveSlowness(LivePlaces(members, domains, 1)))
            self._watched[key] = watched
        told, now_ns = self._told(job, watched), self._cluster.time.now_ns
        finding = watched.live.judge_told(told, job.lineage.last_step or 0, now_ns)
        news = news_of(slow_parts(job), finding)
        if news is not None:
            self.named.setdefault(job.name, set()).update(one.node for one in news)
            sentence = news[0].sentence if news else "nobody is slow any more"
            number = job.generation.number
            self._cluster.fleet.submit(events.SlowJudged(job.id, number, sentence, news))

    def _told(self, job: JobRecord, watched: _Watched) -> dict[int, RankColumns]:
        """Return what the nodes tell that the controller hears."""
        told = {}
        for rank, name in enumerate(job.generation.members):
            own = watched.own[name] = self._work(job, name, watched.own.get(name, ComputeTime()))
            node = self._cluster.fleet.nodes[name]
            if self._cluster.fleet.flows(node):
                row = RankRow(rank, 0, 0, 0, 0, "", own=own.packed)
                told[rank] = pack_ranks(job.id, job.generation.number, [row])
        return told

    def _work(self, job: JobRecord, name: str, own: ComputeTime) -> ComputeTime:
        now_s = self._cluster.time.now_ns / SECOND
        factors = [one.factor for one in self._slow if one.concerns(name, job.name, now_s)]
        usual_ns = _OWN_NS * max(factors, default=1.0)
        for _ in range(4):
            own = own.add_step(int(usual_ns * self._rng.lognormvariate(0, _NOISE)))
        return own
