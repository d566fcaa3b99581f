"""Simulated stillness: agents say that their ranks have not moved for a while, or move again."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.model.node import Origin
from everstep_sim.fleet import SimulatedFleet
from everstep_sim.ranks import Ranks
from everstep_sim.timeline import SECOND, VirtualTime
from everstep_sim.unchanged import UnchangedScript

# After so long without a move a node says so, at least; and after so many times what it has learned
# that a step takes.
STILL_S = 3.0
_TIMES = 1.5
# A node that sees no move of its ranks says so after this time.
_UNSEEING_S = 10.0
# A rank reads so often how far it is.
_READ_EVERY_NS = SECOND // 2


@dataclass(frozen=True, slots=True)
class Held:
    """What holds a generation back: nodes whose readers do not run, or a pause that was told."""

    blind: Collection[str] = ()
    paused: bool = False


_NOT_HELD = Held()


class StillnessWords:
    """Words of all agents on the ranks of one job."""

    def __init__(
        self,
        fleet: SimulatedFleet,
        time: VirtualTime,
        ranks: Ranks,
        script: UnchangedScript | None,
    ) -> None:
        self._fleet = fleet
        self._time = time
        self._ranks = ranks
        # Of a script without the library only the node of rank 0 knows steps.
        self._prints = script is not None
        self._recorded = script is None or script.recorded
        self._usual_ns = int(max(STILL_S, _TIMES * (script.longest_s if script else 0)) * SECOND)
        self.held: Callable[[int], Held] = lambda number: _NOT_HELD
        # By node, the generation of which it has said that its ranks stand still, and their step.
        self._told: dict[str, tuple[int, int]] = {}
        # By node and generation, since when it has seen no move; 0: it has said so.
        self._unseeing: dict[tuple[str, int], int] = {}
        # By generation, its step and since when it is at it.
        self._since: dict[int, tuple[int, int]] = {}

    def tell_stillness(self, number: int) -> None:
        """Have nodes say that their ranks of a generation stand still, or that they go on."""
        ours, now_ns = self._ranks.generations[number], self._time.now_ns
        step, since_ns = self._since.setdefault(number, (ours.step, now_ns))
        if ours.step != step:
            step, since_ns = self._since[number] = (ours.step, now_ns)
        # Of a generation that has made no step nothing was learned.
        held = self.held(number)
        still = now_ns - since_ns > self._usual_ns and step >= 0 and not held.paused
        for name in ours.members:
            node, known = self._fleet.nodes[name], self._told.get(name)
            if not self._fleet.agent_runs(node):
                continue
            if not self._recorded and name != ours.members[0]:
                self._tell_unseeing(name, number)
            elif still and known != (number, step):
                self._told[name] = (number, step)
                first = name == ours.members[0]
                word = reports.RanksStandStill(
                    generation=number,
                    step=step if not self._prints or first else None,
                    # Of a rank whose reader does not run any more no node knows the last move.
                    since_boot_ns=max(0, since_ns - _READ_EVERY_NS * (name in held.blind)),
                    usual_ns=self._usual_ns,
                    looked_boot_ns=now_ns,
                )
                self._fleet.record(node, partial(self._stand_still, word))
            elif not still and self._told.pop(name, (0, 0))[0] == number:
                self._fleet.record(node, partial(self._go_on, number, now_ns))

    def _tell_unseeing(self, name: str, number: int) -> None:
        """Have a node whose ranks show nothing say so, once."""
        now_ns = self._time.now_ns
        since_ns = self._unseeing.setdefault((name, number), now_ns)
        if since_ns and now_ns - since_ns > _UNSEEING_S * SECOND:
            self._unseeing[name, number] = 0
            word = reports.RanksStandStill(
                generation=number,
                step=None,
                since_boot_ns=since_ns,
                usual_ns=int(STILL_S * SECOND),
                blind="nothing is recorded",
                looked_boot_ns=now_ns,
                young=True,
            )
            self._fleet.record(self._fleet.nodes[name], partial(self._stand_still, word))

    def _stand_still(self, word: reports.RanksStandStill, origin: Origin) -> events.Event:
        return events.Reported(origin, word.since_boot_ns, word, self._ranks.job)

    def _go_on(self, number: int, at_ns: int, origin: Origin) -> events.Event:
        return events.Reported(origin, at_ns, reports.RanksGoOn(number, at_ns), self._ranks.job)
