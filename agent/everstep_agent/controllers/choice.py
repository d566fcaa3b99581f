"""Choice of a controller: which of several addresses is asked for a stream, and when. Pure.

A crowd of agents decides the same at the same moment, so most times here are drawn. A standby in
particular must not be asked by all of them at once: that it is up to date is what they wait for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

# A controller that has not answered for so long may be stopped, or its machine off. It may be busy
# as well, so the question stays open while another one is asked.
PATIENCE_S = 2.0
# Over so long agents spread their first question to another controller: a lease is not taken over
# sooner. Those of a large fleet take longer: a handshake takes a millisecond or two of a processor,
# which the standby needs for looking at the lease.
_SPREAD_S = 2.0
_HANDSHAKES_PER_S = 1_000
_CROWD_MOST_S = 30.0
# The same where the active controller is known: as soon after a handover as its processor allows.
_NAMED_SPREAD_S = 0.5
# Two that name each other as the active one are not asked more often than this.
_NAMED_AGAIN_S = 1.0
# How long to wait for a standby to become active: the first wait, each of the next twice that.
_STANDBY_FIRST_S, _STANDBY_MOST_S = 1.0, 4.0
# The same for an agent that has a stream, only to one that acknowledges nothing.
_STANDBY_SERVED_MOST_S = 30.0
_DRAWN = (0.5, 1.5)
# A controller that says nothing at all, and has no record to acknowledge: it asks for the time
# every 10 s.
_QUIET_S = 15.0
# Over so long agents spread the moment at which they look for another controller than the one that
# acknowledges nothing to any of them.
_STALL_SPREAD_S = 3.0


class Answer(Enum):
    """What came of the question for a stream, or how a stream has ended."""

    # Nobody listens there, there is no way to it, or the stream was ended for another reason.
    GONE = auto()
    # It says neither yes nor no: its process is stopped, its machine is off, or it is busy.
    SILENT = auto()
    # It is not the active one.
    STANDBY = auto()
    # Its term is lower than the highest that this agent has seen.
    OUTDATED = auto()
    # It does not take this agent until somebody has changed something.
    REFUSED = auto()
    # The agent itself has ended the stream, to say something else in Hello.
    RENEWED = auto()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no stream."""

    answer: Answer
    # The address of the active one, as a standby names it.
    active: str = ""


class Delays(Protocol):
    """Waits before a controller is asked again, which grow as long as it does not serve."""

    def next_s(self) -> float:
        """Return how long to wait now."""
        ...

    def refused_s(self) -> float:
        """Return how long to wait after a refusal."""
        ...

    def reset(self) -> None:
        """Begin again with the shortest."""
        ...


class Uniform(Protocol):
    """A source of chance."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between two."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now: ask an address, or wait until a time (None: for an answer)."""

    address: str = ""
    at_s: float | None = None


@dataclass(slots=True)
class _Controller:
    """What is known of one controller."""

    address: str
    delays: Delays
    # When it may be asked again.
    ready_s: float = float("-inf")
    # Since when a question is open.
    asked_s: float | None = None
    # When it has answered last, and what; None: not since a controller served this agent.
    answered_s: float = float("-inf")
    answer: Answer | None = None
    # How often it has said that it is a standby, one time after the other.
    standbys: int = 0


@dataclass
class ControllerChoice:
    """Order in which controllers are asked for a stream, until one of them serves this agent.

    With a single address it is asked again after the waits of its delays, and that is all.
    """

    addresses: Sequence[str]
    delays: Callable[[], Delays]
    chance: Uniform
    # The one that serves this agent.
    serving: str = ""
    # Over how many seconds the agents of this fleet spread what all of them do at once.
    crowd_s: float = 0.0
    _known: list[_Controller] = field(init=False)
    # Before this time no controller is asked that has not answered in this search.
    _gate_s: float = float("-inf")
    _last: str = ""

    def __post_init__(self) -> None:
        self._known = [_Controller(address, self.delays()) for address in self.addresses]

    def next(self, now_s: float) -> Step:
        """Return what to do now. An address is asked with that, until `failed` or `welcomed`."""
        soonest_s = None
        for one in self._known:
            if one.asked_s is not None or one.address == self.serving:
                continue
            at_s = self._due_s(one)
            if at_s <= now_s:
                one.asked_s, self._last = now_s, one.address
                # One that is asked again and again does not put off the question to another one.
                if one.answer is None:
                    self._gate_s = now_s + PATIENCE_S + self._spread_s()
                return Step(one.address)
            soonest_s = at_s if soonest_s is None else min(soonest_s, at_s)
        return Step(at_s=soonest_s)

    def failed(self, address: str, failure: Failure, now_s: float) -> None:
        """The question to a controller has brought no stream."""
        one = self._of(address)
        one.asked_s, is_first = None, one.answer is None
        one.answer, one.answered_s = failure.answer, now_s
        one.ready_s = now_s + self._wait_s(one, failure)
        if is_first and all(other.asked_s is None for other in self._known):
            self._gate_s = now_s + self._spread_s()
        self._prefer(failure.active, now_s)
        self._release_outdated(now_s)

    def abandoned(self, address: str) -> None:
        """A question is not waited for any more."""
        self._of(address).asked_s = None

    def takes_outdated(self, address: str) -> bool:
        """Return whether a controller of a lower term is better than none: no other serves."""
        return all(one.answer for one in self._known if one.address != address)

    def welcomed(self, address: str, fleet_nodes: int = 0) -> None:
        """A controller of a fleet of some size serves this agent."""
        self.serving = address
        self.crowd_s = min(_CROWD_MOST_S, fleet_nodes / _HANDSHAKES_PER_S)
        self._put(address, first=True)
        self._begin()
        for one in self._known:
            one.standbys = 0

    def lost(self, failure: Failure, now_s: float, *, good: bool) -> None:
        """The stream has ended; ``good``: it was one for some time."""
        one = self._of(self.serving)
        self.serving, self._last = "", one.address
        self._begin()
        for other in self._known if good else ():
            other.delays.reset()
        one.ready_s = now_s + self._wait_s(one, failure)
        self._gate_s = now_s + self._spread_s()
        if failure.answer is Answer.SILENT and len(self._known) > 1:
            # Most likely it says nothing for some time: after the others.
            self._put(one.address, first=False)
            one.ready_s = max(one.ready_s, self._gate_s)
        self._prefer(failure.active, now_s)

    def is_known(self, address: str) -> bool:
        """Return whether an address is configured: no other one is ever asked."""
        return any(one.address == address for one in self._known)

    # --- parts ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a search: no controller has answered in it."""
        for one in self._known:
            if one.answer is Answer.OUTDATED:
                one.ready_s = float("-inf")
            one.asked_s = one.answer = None

    def _spread_s(self) -> float:
        return self.chance.uniform(0, max(_SPREAD_S, self.crowd_s))

    def _due_s(self, one: _Controller) -> float:
        if one.answer is not None or one.address == self._last:
            return one.ready_s
        return max(one.ready_s, self._gate_s)

    def _wait_s(self, one: _Controller, failure: Failure) -> float:
        match failure.answer:
            case Answer.STANDBY:
                one.standbys += 1
                most_s = _STANDBY_SERVED_MOST_S if self.serving else _STANDBY_MOST_S
                grown_s = min(most_s, _STANDBY_FIRST_S * 2.0 ** min(one.standbys - 1, 10))
                return max(self.crowd_s, grown_s) * self.chance.uniform(*_DRAWN)
            case Answer.OUTDATED:
                # Without a stream until every other one has failed, see _release_outdated.
                return _STANDBY_SERVED_MOST_S if self.serving else float("inf")
            case Answer.REFUSED:
                return one.delays.refused_s()
            case Answer.RENEWED:
                return 0.0
            case Answer.GONE | Answer.SILENT:
                return one.delays.next_s()

    def _prefer(self, active: str, now_s: float) -> None:
        """Ask the one that is named as the active one next, unless it has just said no."""
        if not self.is_known(active) or active == self.serving:
            return
        named = self._of(active)
        self._put(active, first=True)
        if named.answer in (None, Answer.STANDBY) and named.asked_s is None:
            drawn_s = self.chance.uniform(0, _NAMED_SPREAD_S)
            named.ready_s = max(now_s, named.answered_s + _NAMED_AGAIN_S) + drawn_s
            self._gate_s = named.ready_s

    def _release_outdated(self, now_s: float) -> None:
        for one in self._known:
            if one.answer is Answer.OUTDATED and self.takes_outdated(one.address):
                one.ready_s = min(one.ready_s, now_s + self._spread_s())

    def _of(self, address: str) -> _Controller:
        return next(one for one in self._known if one.address == address)

    def _put(self, address: str, *, first: bool) -> None:
        one = self._of(address)
        self._known.remove(one)
        self._known.insert(0 if first else len(self._known), one)


@dataclass
class StallWatch:
    """Whether the controller that serves this agent has to be doubted: it acknowledges nothing."""

    chance: Uniform
    # See ControllerChoice.
    crowd_s: float = 0.0
    _waiting: int = 0
    _since_s: float = 0.0
    _patience_s: float = 0.0

    def is_stalled(self, waiting: int, quiet_s: float, now_s: float) -> bool:
        """Return whether it is; ``waiting``: the oldest record that waits for a word, or 0."""
        if waiting != self._waiting:
            self._waiting, self._since_s = waiting, now_s
            spread_s = max(_STALL_SPREAD_S, self.crowd_s)
            self._patience_s = PATIENCE_S + self.chance.uniform(0, spread_s)
        stands = waiting > 0 and now_s - self._since_s >= self._patience_s
        return stands or quiet_s >= _QUIET_S
