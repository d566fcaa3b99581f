"""Save exchange with the agent: Begin asks for a slot, Commit says what was copied into it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from everstep.rank.agent_link import AgentLink
from everstep.saving.mapping import Paddings
from everstep.saving.policy import Deadlines, Policy
from everstep.saving.reservation import Pinner, Reservation
from everstep_common.rank_messages import (
    Begin,
    Commit,
    Committed,
    CommittedAhead,
    Entry,
    Refused,
    Skip,
    Slot,
    Unplanned,
)

_COMMITTED = (Committed, CommittedAhead)


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


_SAVED = Outcome(Ending.SAVED)


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


class Exchange(Protocol):
    """Taker of a step: the agent, or the job's folder while there is none."""

    @property
    def policy(self) -> Policy:
        """Return how the step is saved."""
        ...

    def begin(self, step: int, size_bytes: int, pinner: Pinner | None) -> Grant | Outcome:
        """Have memory for the step, or know why not."""
        ...

    def commit(self, grant: Grant, entries: tuple[Entry, ...]) -> Outcome:
        """Give the copy away."""
        ...


@dataclass(slots=True)
class OpenCommit:
    """Commit that nobody has waited for; its answer is heard at the next boundary."""

    step: int
    session: int
    answer: object | None = None
    # Whether it counts as not saved, because there was no answer in time.
    counted: bool = False


@dataclass(slots=True)
class Handover:
    """State between two steps: the open commit, and a slot that was granted ahead."""

    commit: OpenCommit | None = None
    ahead: CommittedAhead | None = None
    # The session, and the reservation in it, of which the granted slot is.
    given_in: tuple[int, int] = (-1, -1)

    def take_grant(self, step: int, given_in: tuple[int, int]) -> Slot | None:
        """Return the slot that was granted for a step; it is granted once."""
        ahead, self.ahead = self.ahead, None
        if ahead is None or given_in != self.given_in:
            return None
        covers = ahead.first_step <= step <= ahead.last_step
        return Slot(ahead.slot, ahead.epoch) if covers else None


@dataclass(frozen=True, slots=True)
class SaveExchange:
    """Agent as the saving of a step uses it; for one thread at a time."""

    link: AgentLink
    reservation: Reservation
    policy: Policy
    deadlines: Deadlines
    # Hears that the agent has a step after all whose commit it did not answer in time.
    on_late_commit: Callable[[], None]
    handover: Handover
    # Whether the answer to a commit is waited for: where the caller is told what came of it.
    waits: bool = False

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
        ready = self.reservation.holds(link, size_bytes, pinner)
        if not ready and (complaint := self.reserve(size_bytes, pinner)):
            return failed(complaint)
        session = self.reservation.session
        if link.asks and not link.hear_answer():
            return failed(link.trouble)
        slot = self.handover.take_grant(step, (session, link.reservations))
        return self._grant(step, slot, session) if slot else self._ask(step, session)

    def _ask(self, step: int, session: int) -> Grant | Outcome:
        link = self.link
        question = Begin(step, self.policy.begin_wait_s)
        timeout_s = self.deadlines.to_begin_s(self.policy)
        answer, _ = link.ask(question, (Slot, Skip, Unplanned), timeout_s)
        match answer:
            case Slot():
                return self._grant(step, answer, session)
            case Skip(reason=reason):
                return Outcome(Ending.SKIPPED, reason)
            case Unplanned(next_step=next_step):
                return Outcome(Ending.UNPLANNED, next_step=next_step, session=session)
            case _:
                return failed(self._reason(answer))

    def _grant(self, step: int, slot: Slot, session: int) -> Grant | Outcome:
        place = self.reservation.place(slot.slot)
        if place is None:
            self.link.drop()
            return failed("the agent named a slot that it never gave")
        return Grant(step, slot, session, *place)

    def commit(self, grant: Grant, entries: tuple[Entry, ...]) -> Outcome:
        """Give the copy to the agent; what came of it is known now, or at the next boundary."""
        link = self.link
        if link.session != grant.session:  # the slot is one of an agent that is gone
            return failed("the agent was restarted during the copy")
        same = bool(entries) and entries == link.committed
        # Which entries the agent knows is not known again before it has answered.
        link.committed = ()
        slot = grant.slot
        commit = Commit(grant.step, slot.slot, slot.epoch, () if same else entries, same, True)
        # A long list of shards takes the agent a while, for which it has the time of this wait.
        if self.waits or not same:
            return self._commit_now(commit, entries)
        return self._post(commit, entries)

    def _commit_now(self, commit: Commit, entries: tuple[Entry, ...]) -> Outcome:
        def committed(answer: object) -> None:
            if self._take_answer(answer, entries):
                self.on_late_commit()

        timeout_s = self.deadlines.commit_s
        answer, _ = self.link.ask(commit, _COMMITTED, timeout_s, on_late=committed)
        if self._take_answer(answer, entries):
            return _SAVED
        return failed(self._reason(answer))

    def _post(self, commit: Commit, entries: tuple[Entry, ...]) -> Outcome:
        opened = OpenCommit(commit.step, self.link.session)

        def committed(answer: object) -> None:
            opened.answer = answer
            if self._take_answer(answer, entries) and opened.counted:
                self.on_late_commit()

        if not self.link.post(commit, _COMMITTED, self.deadlines.commit_s, committed):
            return failed(self.link.trouble)
        self.handover.commit = opened
        return _SAVED

    def _take_answer(self, answer: object | None, entries: tuple[Entry, ...]) -> bool:
        """Note what the agent knows and grants by its answer; return whether it has the copy."""
        if not isinstance(answer, _COMMITTED):
            return False
        self.link.committed = entries
        if isinstance(answer, CommittedAhead):
            self.handover.ahead = answer
            self.handover.given_in = (self.link.session, self.link.reservations)
        return True

    def finish_commit(self) -> Outcome | None:
        """Return what came of the commit that nobody has waited for; None: there is none open."""
        opened, self.handover.commit = self.handover.commit, None
        if opened is None:
            return None
        self.link.hear_answer()
        if isinstance(opened.answer, _COMMITTED):
            return _SAVED
        # Without an answer it may come later yet, and count then.
        opened.counted = opened.answer is None
        return failed(self._reason(opened.answer))

    def _reason(self, answer: object | None) -> str:
        return answer.reason if isinstance(answer, Refused) else self.link.trouble
