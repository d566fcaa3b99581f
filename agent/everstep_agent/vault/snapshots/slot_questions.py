"""Slot questions: which steps a rank is to ask for, which are withheld, and when it waits. Pure."""

from dataclasses import dataclass

from everstep_agent.vault.snapshots.cadence import (
    Cadence,
    ExpiredHold,
    PollPace,
    StepHold,
    next_snapshot_step,
)
from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_agent.vault.snapshots.slot_patience import VainWait


@dataclass(frozen=True, slots=True)
class SlotOrders:
    """What the controller has told of a job's snapshots so far."""

    cadence: Cadence
    hold: StepHold | None
    recoverable: Recoverable


class SlotQuestions:
    """Memory of one rank's questions, by which the next one is answered."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._vain = VainWait()
        # The planned restart for which a step has waited and which did not come.
        self._waited = ExpiredHold()
        self._pace = PollPace()

    def is_held(self, orders: SlotOrders, step: int) -> bool:
        """Return whether a restart is planned before the step."""
        last = self._waited.last_step(orders.hold, self._generation)
        return last is not None and step > last

    def record_hold_ended(self, orders: SlotOrders, step: int) -> None:
        """The wait before a step is over; if the restart is still planned, it was in vain."""
        if orders.hold is not None:
            self._waited = self._waited.in_vain(orders.cadence, orders.hold, step)

    def step_to_ask_at(self, orders: SlotOrders, step: int, now_s: float) -> int:
        """Return the step itself, or where it is not wanted, the one before which to ask again."""
        wanted = next_snapshot_step(orders.cadence, orders.hold, self._generation, step)
        if wanted == step:
            return step
        self._pace = self._pace.after_question(step, now_s)
        return min(wanted, step + self._pace.ahead)

    def step_ahead(self, orders: SlotOrders, step: int, now_s: float) -> int | None:
        """Return the step after a committed one whose slot may be granted with the answer, if any.

        Of a planned restart a rank hears only when it asks, so none is granted for a step that is
        farther away than that.
        """
        wanted = next_snapshot_step(orders.cadence, orders.hold, self._generation, step + 1)
        self._pace = self._pace.after_question(step, now_s)
        far = wanted > step + self._pace.ahead
        return None if far or self.is_held(orders, wanted) else wanted

    def is_last_step(self, orders: SlotOrders, step: int) -> bool:
        """Return whether this very step is to be restored after a planned restart."""
        return orders.hold is not None and orders.hold.is_last_step(self._generation, step)

    def vain_reason(self, orders: SlotOrders, step: int) -> str:
        """Return why a wait for a slot would be in vain again; "" where it is worth one."""
        rule = orders.cadence.rule_of(self._generation, step)
        starved = self._vain.holds(orders.recoverable, rule)
        return self._vain.reason if starved and not self.is_last_step(orders, step) else ""

    def record_vain_wait(self, orders: SlotOrders, step: int, reason: str) -> None:
        """A wait for the slot of a step has ended without one."""
        rule = orders.cadence.rule_of(self._generation, step)
        self._vain = VainWait.under(orders.recoverable, rule, reason)
