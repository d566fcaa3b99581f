"""Simulated looks: jobs that stand still are looked at, and judged by the judge that ships.

What ranks tell follows from what has happened to them: one that is stopped or hangs has not come
to the operation in which the others wait, and one whose machine stands still tells nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from everstep_common.codec import json_text
from everstep_common.hangs.looks import follow, judge_told
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import (
    GroupReport,
    Operation,
    OperationState,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobRecord
from everstep_controller.hangs.stall_looks import (
    FIRST_PAUSE_S,
    Known,
    Stall,
    is_looked_at,
    is_news_of,
    longer_pause_s,
    pause_s,
    stall_of,
    word_of,
)
from everstep_sim.controller import SimulatedController
from everstep_sim.fleet import SimulatedFleet
from everstep_sim.node import SimulatedNode
from everstep_sim.ranks import Ranks, SimulatedGeneration
from everstep_sim.stillness import Held, StillnessWords
from everstep_sim.timeline import SECOND, VirtualTime
from everstep_sim.unchanged import UnchangedScript

_TICK_S = 0.5
# From the question to the verdict, where nodes answer at once.
_LOOK_S = 0.6
_SHAPES = "1024 Float"
_IN_COMMUNICATION = ("distributed_c10d.py:2501 all_reduce", "train.py:31 step", "train.py:90 main")
_IN_PROGRAM = ("data.py:12 load", "train.py:28 batch", "train.py:90 main")


@dataclass(slots=True)
class _Watch:
    """Looks at one stall, by one process of the controller."""

    stall: Stall
    core: Core
    known: Known = field(default_factory=Known)
    usual_s: float = FIRST_PAUSE_S
    next_ns: int = 0


class Looks:
    """Watch of all jobs of a cluster that stand still, and the words of agents that begin it."""

    def __init__(
        self,
        fleet: SimulatedFleet,
        time: VirtualTime,
        controller: SimulatedController,
        ranks_of: Mapping[str, Ranks],
        script: UnchangedScript | None,
    ) -> None:
        self._fleet = fleet
        self._time = time
        self._controller = controller
        self._ranks_of = ranks_of
        self._watches: dict[str, _Watch] = {}
        self._words = {
            job: StillnessWords(fleet, time, ranks, script) for job, ranks in ranks_of.items()
        }
        self.ends = False
        # How many looks were judged.
        self.judged = 0
        for job, words in self._words.items():
            words.held = partial(self._held, job)

    def tick(self) -> None:
        """Have agents tell who stands still, and look at jobs; again soon."""
        if self.ends:
            return
        for job, ranks in self._ranks_of.items():
            for number, ours in ranks.generations.items():
                if ours.members and self._runs(job, number, ours):
                    self._words[job].tell_stillness(number)
            self._look(job)
        self._time.after(_TICK_S, self.tick)

    def _runs(self, job: str, number: int, ours: SimulatedGeneration) -> bool:
        node = self._fleet.nodes[ours.members[0]]
        local = node.jobs.get(job)
        return local is not None and local.running == number and self._ranks_of[job].whole(number)

    def _held(self, job: str, number: int) -> Held:
        ours, now_ns = self._ranks_of[job].generations[number], self._time.now_ns
        stopped = [
            name for name in ours.members if self._fleet.nodes[name].stopped_until_ns > now_ns
        ]
        return Held(stopped)

    # --- the watch -------------------------------------------------------------------------------

    def _look(self, name: str) -> None:
        controller, now_ns = self._controller, self._controller.now_ns
        job = controller.core.state.job(name) if controller.listens else None
        if job is None or controller.core.state.halted or not is_looked_at(job, now_ns):
            self._watches.pop(name, None)
            return
        watch = self._watches.get(name)
        if watch is None or watch.stall != stall_of(job) or watch.core is not controller.core:
            watch = self._watches[name] = _Watch(stall_of(job), controller.core)
        if now_ns < watch.next_ns:
            return
        told = [self._told(job, place, node) for place, node in enumerate(job.generation.members)]
        self._time.after(_LOOK_S, partial(self._judge, name, watch, told, now_ns))
        watch.next_ns = now_ns + int((_LOOK_S + pause_s(job, watch.usual_s, now_ns)) * SECOND)
        watch.usual_s = longer_pause_s(watch.usual_s)

    def _judge(self, name: str, watch: _Watch, told: list[NodeTold], asked_ns: int) -> None:
        if self._watches.get(name) is not watch or not self._controller.listens:
            return
        job = self._controller.core.state.job(name)
        if job is None or stall_of(job) != watch.stall or not any(one.reports for one in told):
            return
        watch.known.streak = follow(watch.known.streak, judge_told(told, asked_ns))
        self.judged += 1
        if is_news_of(job, watch.known, self._controller.now_ns) and self._fleet.submit(
            word_of(job, watch.known, "")
        ):
            watch.known.note_told()

    # --- what ranks tell -------------------------------------------------------------------------

    def _told(self, job: JobRecord, place: int, name: str) -> NodeTold:
        """Return what the agent of a member says of its rank."""
        node, number = self._fleet.nodes.get(name), job.generation.number
        if node is None or not self._fleet.flows(node):
            return NodeTold(name, place, 1, (), "no answer within 5 s")
        ours = self._ranks_of[job.name].generations.get(number)
        if ours is None or node.of(job.name).newest != number:
            return NodeTold(name, place, 1, (), "no rank of it runs here")
        return NodeTold(name, place, 1, (json_text(self._report(job, place, node, ours)),))

    def _report(
        self, job: JobRecord, place: int, node: SimulatedNode, ours: SimulatedGeneration
    ) -> RankHangReport:
        now_ns, size = self._time.now_ns, len(job.generation.members)
        if node.of(job.name).running != job.generation.number:
            gone = ProcessFacts(state=ProcessState.DEAD)
            return RankHangReport(rank=place, world_size=size, process=gone)
        if node.stopped_until_ns > now_ns:
            stopped = ProcessFacts(state=ProcessState.STOPPED, state_for_ms=1000)
            return RankHangReport(rank=place, world_size=size, process=stopped)
        if ours.restored < set(ours.members):
            loads = ProcessFacts(state=ProcessState.SLEEPING, python_stack=_IN_PROGRAM)
            return RankHangReport(rank=place, world_size=size, process=loads)
        holds = self._holds(node)
        waits = not holds and any(self._holds(self._fleet.nodes[one]) for one in ours.members)
        process = ProcessFacts(
            state=ProcessState.SLEEPING,
            wchan="futex_wait_queue" if waits else "hrtimer_nanosleep",
            python_stack=_IN_COMMUNICATION if waits else _IN_PROGRAM,
        )
        done = max(0, ours.step + 1)
        return RankHangReport(
            rank=place,
            world_size=size,
            backend="gloo",
            schema="2.10",
            groups=(_group(size, done, waits=waits),),
            process=process,
            step=ours.step if ours.step >= 0 else None,
        )

    def _holds(self, node: SimulatedNode) -> bool:
        """Return whether a rank of a node does not come to the next operation."""
        return node.ranks_come_ns > self._time.now_ns


def _group(size: int, done: int, *, waits: bool) -> GroupReport:
    waiting = Operation(done + 1, "all_reduce", _SHAPES, OperationState.SCHEDULED)
    members = f"0-{size - 1}" if size > 1 else "0"
    return GroupReport(
        "default_pg",
        members,
        size,
        enqueued=done + waits,
        completed=done,
        pending_count=int(waits),
        pending=(waiting,) if waits else (),
        done=f"all_reduce {_SHAPES}",
    )
