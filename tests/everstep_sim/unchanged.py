"""Simulated scripts without the library: they print steps, and save their state themselves."""

from dataclasses import dataclass, field

from everstep_common.reports import Phase
from everstep_controller.core import actions, events
from everstep_sim.fleet import SimulatedFleet
from everstep_sim.node import SimulatedNode
from everstep_sim.ranks import Ranks
from everstep_sim.timeline import VirtualTime


@dataclass(frozen=True, slots=True)
class UnchangedScript:
    """A script that saves its state after every so many steps; times are in seconds."""

    saves_every: int
    step_s: float
    save_s: float
    # Each step takes up to this share longer or shorter.
    jitter: float = 0.1
    # It prints one step in so many.
    prints_every: int = 1
    # Its collectives are recorded; else nodes of ranks that print nothing see no move of theirs.
    recorded: bool = True

    @property
    def longest_s(self) -> float:
        """Return how long a step takes at most, with a save."""
        return (1 + self.jitter) * self.step_s + self.save_s


@dataclass(frozen=True, slots=True)
class TrueStep:
    """A step that was made, and when; the time of a save is a part of the step after it."""

    generation: int
    step: int
    begun_ns: int
    ended_ns: int


@dataclass(slots=True)
class ScriptHistory:
    """True history: when processes started, which steps they made, when they were killed."""

    steps: list[TrueStep] = field(default_factory=list)
    # By generation.
    started_ns: dict[int, int] = field(default_factory=dict)
    first_begun_ns: dict[int, int] = field(default_factory=dict)
    killed_ns: dict[int, int] = field(default_factory=dict)


class UnchangedRanks(Ranks):
    """Ranks of which nobody hears more than that they run, and what one of them prints."""

    def __init__(
        self,
        fleet: SimulatedFleet,
        time: VirtualTime,
        job: str,
        steps: int,
        script: UnchangedScript,
    ) -> None:
        super().__init__(fleet, time, job, steps)
        self._script = script
        self._last_ns = 0
        self._saved_step = -1
        self.history = ScriptHistory()

    def start(self, node: SimulatedNode, order: actions.StartGeneration) -> None:
        """Start a node's ranks; they go on after the step that they have saved themselves."""
        super().start(node, order)
        ours = self.generations[order.generation]
        if ours.orders.get(node.name) is order:
            ours.step = self._saved_step

    def kill(self, node: SimulatedNode) -> None:
        """Kill the rank of a node; its launcher sees it."""
        self.history.killed_ns[node.of(self.job).running] = self._time.now_ns
        super().kill(node)

    def _tell_phase(self, node: SimulatedNode, generation: int, phase: Phase) -> None:
        if phase is Phase.STARTED:
            self.history.started_ns[generation] = self._time.now_ns
            super()._tell_phase(node, generation, phase)

    def _try_step(self, generation: int) -> None:
        ours = self.generations[generation]
        if ours.stepping or not self.whole(generation) or ours.restored < set(ours.members):
            return
        if ours.step + 1 >= self._steps:
            self._finish(generation)
            return
        if frozen_s := self._frozen_s(generation):
            self._time.after(frozen_s + 0.01, lambda: self._try_step(generation))
            return
        if generation not in self.history.first_begun_ns:
            self.history.first_begun_ns[generation] = self._last_ns = self._time.now_ns
        ours.stepping = True
        script = self._script
        shortest, longest = 1 - script.jitter, 1 + script.jitter
        self._time.soon(
            shortest * script.step_s,
            longest * script.step_s,
            lambda: self._computed(generation),
        )

    def _computed(self, generation: int) -> None:
        if not self.whole(generation):
            return
        ours, now_ns = self.generations[generation], self._time.now_ns
        ours.step += 1
        self.completed.setdefault(ours.step, []).append(generation)
        if (ours.step + 1) % self._script.prints_every == 0:
            step = TrueStep(generation, ours.step, self._last_ns, now_ns)
            self.history.steps.append(step)
            self._last_ns = now_ns
            self._print(generation, ours.step)
        saves = (ours.step + 1) % self._script.saves_every == 0
        save_s = self._script.save_s if saves else 0.0
        self._time.after(save_s, lambda: self._go_on(generation, saved=saves))

    def _go_on(self, generation: int, *, saved: bool) -> None:
        ours = self.generations[generation]
        if self.whole(generation):
            if saved:
                self._saved_step = ours.step
            ours.stepping = False
            self._try_step(generation)

    def _print(self, generation: int, step: int) -> None:
        """Have the launcher of rank 0 see the step in its output."""
        ours = self.generations[generation]
        row = events.JobProgressed(
            job=self.job,
            generation=generation,
            first_step=step,
            end_ns=(self._time.now_ns,),
            stall_ns=(0,),
        )
        self._fleet.record(self._fleet.nodes[ours.members[0]], lambda _: row)
