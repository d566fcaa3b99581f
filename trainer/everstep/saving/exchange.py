"""Save exchange with the agent: Begin asks for a slot, Commit says what was copied into it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from everstep.rank.agent_link import AgentLink
from everstep.saving.paddings import Paddings
from everstep.saving.policy import Deadlines, Policy
from everstep.saving.reservation import Pinner, Reservation
from everstep_common.trainer_messages import (
    Begin,
    Commit,
    Committed,
    Entry,
    Refused,
    Skip,
    Slot,
    Unplanned,
)


class Ending(Enum):
    """Result of the attempt to save a step."""

    SAVED = "saved"
    # No slot was free.
    SKIPPED = "skipped"
    # The controller does not want this step: nothing is missing.
    UNPLANNED = "unplanned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the attempt to save a step, and the reason."""

    ending: Ending
    reason: str = ""
    # The next step that is wanted, and the session in which the agent said so.
    next_step: int = 0
    session: int = 0
    error: Exception | None = field(default=None, compare=False)


def failed(reason: str, error: Exception | None = None) -> Outcome:
    """Return the outcome of a step that is not saved."""
    return Outcome(Ending.FAILED, reason, error=error)


@dataclass(frozen=True, slots=True)
class Grant:
    """Slot that the agent granted: where to copy to, and what the commit has to repeat."""

    step: int
    slot: Slot
    session: int
    address: int
    paddings: Paddings


@dataclass(frozen=True, slots=True)
class SaveExchange:
    """Agent as the saving of a step uses it; for one thread at a time."""

    link: AgentLink
    reservation: Reservation
    policy: Policy
    deadlines: Deadlines
    # Hears that the agent has a step after all whose commit it did not answer in time.
    on_late_commit: Callable[[], None]

    def reserve(self, size_bytes: int, pinner: Pinner | None) -> str:
        """Have slots of this size; return a complaint, or ""."""
        timeout_s = self.deadlines.to_reserve_s(size_bytes)
        return self.reservation.reserve(self.link, size_bytes, timeout_s, pinner)

    def reserve_ahead(self, size_bytes: int, pinner: Pinner | None) -> None:
        """Begin to have slots of this size, in the background."""
        timeout_s = self.deadlines.to_reserve_s(size_bytes)
        self.reservation.ahead(self.link, size_bytes, timeout_s, pinner)

    def begin(self, step: int, size_bytes: int, pinner: Pinner | None) -> Grant | Outcome:
        """Have a slot for the step, or know why not."""
        link = self.link
        if not link.attach_quickly():
            return failed(link.trouble)
        link.ready()
        if complaint := self.reserve(size_bytes, pinner):
            return failed(complaint)
        session = self.reservation.session
        question = Begin(step, self.policy.begin_wait_s)
        timeout_s = self.deadlines.to_begin_s(self.policy)
        answer, _ = link.ask(question, (Slot, Skip, Unplanned), timeout_s)
        match answer:
            case Slot(slot=slot):
                place = self.reservation.place(slot)
                if place is None:
                    link.drop()
                    return failed("the agent named a slot that it never gave")
                return Grant(step, answer, session, *place)
            case Skip(reason=reason):
                return Outcome(Ending.SKIPPED, reason)
            case Unplanned(next_step=next_step):
                return Outcome(Ending.UNPLANNED, next_step=next_step, session=session)
            case _:
                return failed(self._reason(answer))

    def commit(self, grant: Grant, entries: tuple[Entry, ...]) -> Outcome:
        """Give the copy to the agent."""
        if self.link.session != grant.session:  # the slot is one of an agent that is gone
            return failed("the agent was restarted during the copy")
        link = self.link
        same = bool(entries) and entries == link.committed
        # Which entries the agent knows is not known again before it has answered.
        link.committed = ()
        commit = Commit(
            grant.step, grant.slot.slot, grant.slot.epoch, () if same else entries, same
        )

        def committed(answer: object) -> None:
            if isinstance(answer, Committed):
                link.committed = entries
                self.on_late_commit()

        answer, _ = link.ask(commit, (Committed,), self.deadlines.commit_s, on_late=committed)
        if not isinstance(answer, Committed):
            return failed(self._reason(answer))
        if link.session == grant.session:
            link.committed = entries
        return Outcome(Ending.SAVED)

    def _reason(self, answer: object | None) -> str:
        return answer.reason if isinstance(answer, Refused) else self.link.trouble
