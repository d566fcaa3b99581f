"""Simulated scheduler with its isolation driver: slow, sometimes broken, used by others as well."""

import random

from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.isolation import (
    DriverRecord,
    Hold,
    IsolationResult,
    WantedIsolation,
)
from everstep_controller.core.nodes.isolation_differences import changed_holds, is_own
from everstep_sim.controller import SimulatedController
from everstep_sim.timeline import VirtualTime

DRIVER, PODS = "scheduler", "pods"
_READ_EVERY_S = 10.0

Call = actions.ApplyIsolation | actions.ReadIsolation


class SimulatedScheduler:
    """Carries out one call at a time; a controller that is killed meanwhile hears of none."""

    def __init__(
        self, seed: int, time: VirtualTime, controller: SimulatedController, driver: str = DRIVER
    ) -> None:
        self.driver = driver
        self.holds: dict[str, Hold] = {}
        # Calls fail while it is broken.
        self.broken = False
        self.applied = 0
        self._rng = random.Random(seed)
        self._time = time
        self._controller = controller
        # All that a controller has asked to have applied.
        self.asked: list[WantedIsolation] = []
        self._waiting: list[tuple[Core, Call]] = []
        self._busy = False

    def read_again(self) -> None:
        """Have it read now and then, as the shell does."""
        if self._controller.up:
            look = actions.ReadIsolation(
                id="look", driver=self.driver, reason="it may have changed"
            )
            self.call(look)
        self._time.after(_READ_EVERY_S, self.read_again)

    def call(self, action: Call) -> None:
        """Take a call of the driver. The core must never ask for a node that others hold.

        Nor for anything while drivers are paused, nor to withhold a node of another driver.
        """
        core = self._controller.core
        if isinstance(action, actions.ApplyIsolation):
            known, state = core.state.drivers[self.driver].nodes, core.state
            assert not any(known[one.node].foreign for one in action.wanted), action
            assert not state.drivers_paused, action
            withheld = [one.node for one in action.wanted if one.withheld]
            assert all(is_own(state, self.driver, name) for name in withheld), action
            self.asked += action.wanted
        self._waiting.append((core, action))
        if not self._busy:
            self._begin_next()

    def drain(self, name: str) -> None:
        """Let somebody else withhold a node."""
        self.holds[name] = Hold("others need it", ours=False)

    def resume(self, name: str) -> None:
        """Let somebody else free a node that somebody else withholds."""
        if name in self.holds and not self.holds[name].ours:
            del self.holds[name]

    # ---------------------------------------------------------------------------------------------

    def _begin_next(self) -> None:
        # What a process wanted that is dead, nobody asks for any more.
        self._waiting = [one for one in self._waiting if one[0] is self._controller.core]
        self._busy = bool(self._waiting)
        if self._busy:
            self._time.after(self._rng.uniform(0.01, 3), self._answer)

    def _answer(self) -> None:
        core, action = self._waiting.pop(0)
        event = self._carry_out(core.state.drivers.get(self.driver), action)
        if core is self._controller.core and event is not None:
            self._controller.post(event)
        self._begin_next()

    def _carry_out(self, record: DriverRecord | None, action: Call) -> events.DriverReported | None:
        if record is None:
            return None
        if isinstance(action, actions.ApplyIsolation):
            if self._controller.core.state.drivers_paused:
                return None  # a worker drops what it has not begun
            results = tuple(self._apply(one) for one in action.wanted)
            return events.DriverReported(driver=self.driver, results=results)
        if self.broken:
            return events.DriverReported(driver=self.driver, failure="no answer within 30 s")
        seen = changed_holds(record, self.holds)
        return events.DriverReported(driver=self.driver, read=True, seen=seen)

    def _apply(self, wanted: WantedIsolation) -> IsolationResult:
        if self.broken and self._rng.random() < 0.7:
            return IsolationResult(wanted, failure="no answer within 30 s")
        self.applied += 1
        hold = self.holds.get(wanted.node)
        if wanted.withheld and (hold is None or hold.ours):
            self.holds[wanted.node] = Hold(wanted.reason, ours=True)
        elif hold is not None and hold.ours:
            del self.holds[wanted.node]
        if self.broken:  # It has done so, and its answer is lost.
            return IsolationResult(wanted, failure="no answer within 30 s")
        return IsolationResult(wanted, self.holds.get(wanted.node))
