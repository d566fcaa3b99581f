"""Simulated hangs: a rank that lives and does not come, what its nodes say, and who looks at it.

Nodes say that their ranks stand still after a few seconds, as agents do; a watch looks again and
again while the job is stalled, and tells the core a verdict that is right, wrong, late or none.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from everstep_common.hangs.reports.verdict import Confidence, Culprit, HangClass, HangVerdict
from everstep_common.reports import Phase
from everstep_controller.core import events
from everstep_controller.core.hangs import response
from everstep_controller.core.model.hang import SeenHang
from everstep_controller.core.model.job import JobRecord
from everstep_sim.cluster import SimulatedCluster
from everstep_sim.ranks import SimulatedGeneration
from everstep_sim.stillness import Held, StillnessWords
from everstep_sim.timeline import SECOND

FOREVER_S = 1e6
_TICK_S = 0.5
_LONGEST_PAUSE_S = 30.0
_STUCK = frozenset({HangClass.DEAD, HangClass.FROZEN, HangClass.GIL_HELD})


class Judged(Enum):
    """How a hang is judged."""

    RIGHT = auto()
    # Another rank is named, for sure.
    WRONG = auto()
    # Only after several looks.
    LATE = auto()
    NEVER = auto()


@dataclass(slots=True, kw_only=True)
class SimulatedHang:
    """A rank holds the others back when they come to a step: for a while, or for ever."""

    kind: HangClass
    step: int
    lasts_s: float = FOREVER_S
    # Whose: a rank wherever it runs, or any rank of a node.
    rank: int = 0
    node: str = ""
    # It hangs before its ranks come to this phase, and not at a step.
    phase: Phase | None = None
    # In how many generations it does so.
    times: int = 1
    # It holds the GIL and computes, so it is not seen to be stuck; whether it builds something
    # meanwhile; and for how long it holds it in one piece at most, as it may in an evaluation.
    computes: bool = False
    builds: bool = False
    held_most_s: float = FOREVER_S
    judged: Judged = Judged.RIGHT
    # What the rank has said to do, which is no step: no node says then that its ranks stand still.
    pause: str = ""
    # Where a look finds it; "" where nobody tells that.
    place: str = ""
    # By generation, when it began there.
    began_ns: dict[int, int] = field(default_factory=dict)

    def holds(self, ours: SimulatedGeneration, number: int, now_ns: int) -> float:
        """Return for how long it still holds a generation back in its next step."""
        here = self.phase is None and ours.step + 1 == self.step
        return self._left_s(ours, number, now_ns, here=here)

    def hangs_before(
        self, ours: SimulatedGeneration, number: int, node: str, phase: Phase, now_ns: int
    ) -> bool:
        """Return whether its rank on a node hangs before it comes to a phase."""
        if self.phase is not phase or not self._concerns(ours) or self.culprit(ours)[1] != node:
            return False
        return self._left_s(ours, number, now_ns, here=True) > 0

    def _concerns(self, ours: SimulatedGeneration) -> bool:
        members = ours.members
        return self.node in members if self.node else self.rank < len(members)

    def _left_s(self, ours: SimulatedGeneration, number: int, now_ns: int, *, here: bool) -> float:
        if number not in self.began_ns:
            if not self._concerns(ours) or not here or len(self.began_ns) >= self.times:
                return 0.0
            self.began_ns[number] = now_ns
        return max(0.0, self.lasts_s - (now_ns - self.began_ns[number]) / SECOND)

    def held_ns(self, number: int, now_ns: int) -> int:
        """Return for how long a look sees that the GIL is held."""
        return min(now_ns - self.began_ns[number], int(self.held_most_s * SECOND))

    def culprit(self, ours: SimulatedGeneration) -> tuple[int, str]:
        """Return which rank it is, and where."""
        members = ours.members
        rank = members.index(self.node) if self.node else self.rank
        return rank, members[rank]


class Hangs:
    """Hangs of the first job of a cluster, and who finds out about them."""

    def __init__(self, cluster: SimulatedCluster, hangs: list[SimulatedHang]) -> None:
        self._cluster = cluster
        self._hangs = hangs
        self._time = cluster.time
        cluster.looks.ends = True  # who looks here finds what the scenario says
        script = cluster.shape.script
        self._words = StillnessWords(cluster.fleet, cluster.time, cluster.ranks, script)
        self._words.held = self._held
        self._watch = _Watch()
        cluster.ranks.held_s = self._held_s
        cluster.ranks.hangs_before = self._hangs_before
        self._time.after(_TICK_S, self._tick)

    def _held_s(self, number: int) -> float:
        ours, now_ns = self._cluster.ranks.generations[number], self._time.now_ns
        return max((one.holds(ours, number, now_ns) for one in self._hangs), default=0.0)

    def _hangs_before(self, number: int, node: str, phase: Phase) -> bool:
        ours, now_ns = self._cluster.ranks.generations[number], self._time.now_ns
        return any(one.hangs_before(ours, number, node, phase, now_ns) for one in self._hangs)

    def held_by(self, number: int) -> SimulatedHang | None:
        """Return what holds a generation back now."""
        ours, now_ns = self._cluster.ranks.generations.get(number), self._time.now_ns
        if ours is None:
            return None
        began = (one for one in self._hangs if number in one.began_ns)
        return next((one for one in began if one.holds(ours, number, now_ns) > 0), None)

    def _tick(self) -> None:
        for number in self._cluster.whole_generations():
            self._words.tell_stillness(number)
        self._look()
        self._time.after(_TICK_S, self._tick)

    def _held(self, number: int) -> Held:
        ours, held = self._cluster.ranks.generations[number], self.held_by(number)
        if held is None:
            return Held()
        blind = [held.culprit(ours)[1]] if held.kind in _STUCK else []
        return Held(blind, paused=bool(held.pause))

    # --- who looks -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at the job when it is stalled, or begins for long, as the watch of hangs does."""
        controller, job = self._cluster.controller, self._cluster.job
        now_ns = controller.now_ns
        from_ns = response.due_from_ns(job) if job is not None else None
        if not controller.listens or job is None or from_ns is None or from_ns > now_ns:
            self._watch = _Watch()
            return
        watch = self._watch
        stall = (controller.core.state.term, job.generation.number, from_ns)
        if watch.stall != stall:
            watch = self._watch = _Watch(stall=stall)
        due = 0 < job.hang.due_ns <= now_ns
        if now_ns < watch.next_ns and not due:
            return
        members = (self._cluster.fleet.nodes.get(name) for name in job.generation.members)
        if any(node is not None and self._cluster.fleet.flows(node) for node in members):
            watch.count(now_ns)
            if seen := self._seen(job, watch):
                sentence = seen.verdict.sentence
                number = job.generation.number
                self._cluster.fleet.submit(events.HangJudged(job.id, number, sentence, seen))

    def _seen(self, job: JobRecord, watch: "_Watch") -> SeenHang | None:
        number = job.generation.number
        hang = self.held_by(number)
        if hang is None or hang.judged is Judged.NEVER:
            return None
        if hang.judged is Judged.LATE and watch.looks < 6:
            return None
        ours = self._cluster.ranks.generations[number]
        rank, node = hang.culprit(ours)
        if hang.judged is Judged.WRONG:
            rank = (rank + 1) % len(ours.members)
            node = ours.members[rank]
        if node not in job.generation.members:
            return None
        culprit = Culprit(rank, node, hang.kind, "it does not come")
        sentence = f"Rank {rank} holds the job back: {hang.kind.value}"
        verdict = HangVerdict(hang.kind, (culprit,), Confidence.CERTAIN, sentence)
        return SeenHang(
            verdict=verdict,
            evidence="5a",
            stuck=(rank,) if hang.kind in _STUCK and not hang.computes else (),
            looks=watch.looks,
            same_ns=watch.newest_ns - watch.first_ns,
            unmoved_ns=watch.newest_ns - watch.first_ns,
            pause=hang.pause,
            place=hang.place,
            held_ns=hang.held_ns(number, watch.newest_ns) if hang.computes else 0,
            works=hang.builds,
        )


@dataclass(slots=True)
class _Watch:
    """Looks at one stall."""

    stall: tuple[int, int, int] | None = None
    looks: int = 0
    first_ns: int = 0
    newest_ns: int = 0
    next_ns: int = 0
    pause_s: float = 1.0

    def count(self, now_ns: int) -> None:
        """Note a look, and when the next one is."""
        self.looks += 1
        self.first_ns = self.first_ns or now_ns
        self.newest_ns = now_ns
        self.next_ns = now_ns + int(self.pause_s * SECOND)
        self.pause_s = min(2 * self.pause_s, _LONGEST_PAUSE_S)
