"""Admin of several controllers: calls go to the active one, or questions to one that answers."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, cast

import grpc

from everstep_cli.client.admin import (
    Admin,
    AdminError,
    Reply,
    Request,
    StandbyError,
    UnreachableError,
)
from everstep_proto.generated.admin_pb2_grpc import AdminStub

R = TypeVar("R")

# How long a controller is waited for that does not answer, before the next one is asked.
_PATIENCE_S = 2.0
# After so long it is looked again for the active one, where a standby has answered, and where the
# active one has: it may have become a standby, which answers questions all the same.
_LOOK_AGAIN_S, _ACTIVE_S = 5.0, 60.0
# Calls that change nothing begin so; a standby answers most of them.
_QUESTIONS = ("Get", "Inspect", "List", "Read", "Watch", "Why")


class Member(Admin, Protocol):
    """Admin of one of them."""

    address: str

    def standby(self, within_s: float) -> str | None:
        """Return the active one's address, as a standby names it; None of the active one itself.

        Raises AdminError.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Found:
    member: Member
    is_active: bool
    at_s: float

    @property
    def lasts_s(self) -> float:
        return _ACTIVE_S if self.is_active else _LOOK_AGAIN_S


@dataclass
class SeveralAdmin:
    """See Admin. Nothing is sent to an address that was not given.

    What changes something is sent a second time only where a standby has refused it: of a call that
    got no answer nobody knows whether it was done.
    """

    members: Sequence[Member]
    now_s: Callable[[], float] = time.monotonic
    _found: _Found | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(
        self,
        method: "Callable[[AdminStub], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
    ) -> Reply:
        """See Admin."""
        member = self._member()
        try:
            return member.call(method, request, about)
        except (StandbyError, UnreachableError) as error:
            return self._other(member, error, method).call(method, request, about)

    def stream(
        self,
        method: "Callable[[AdminStub], grpc.UnaryStreamMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
        *,
        endless: bool = False,
    ) -> Iterator[Reply]:
        """See Admin. A stream that has begun is not begun again."""
        member, begun = self._member(), False
        try:
            for reply in member.stream(method, request, about, endless=endless):
                begun = True
                yield reply
        except (StandbyError, UnreachableError) as error:
            if begun:
                raise
            other = self._other(member, error, method)
        else:
            return
        yield from other.stream(method, request, about, endless=endless)

    def _member(self) -> Member:
        """Return the one to ask: the active one, or a standby where none is. Raises AdminError."""
        with self._lock:
            found = self._found
            if found is None or self.now_s() - found.at_s > found.lasts_s:
                found = self._found = self._look(self.members)
            return found.member

    def _other(
        self, member: Member, error: StandbyError | UnreachableError, method: Callable[..., object]
    ) -> Member:
        """Return the one to ask after one has not done it. Raises the error where there is none."""
        with self._lock:
            self._found = None
            if isinstance(error, StandbyError):
                named = [one for one in self.members if one.address == error.active]
                if not named or named[0] is member:
                    raise error
                self._found = _Found(named[0], True, self.now_s())
                return named[0]
            if not is_question(method):
                raise error
            others = [one for one in self.members if one is not member]
            self._found = self._look(others)
            return self._found.member

    def _look(self, members: Sequence[Member]) -> _Found:
        """Ask one after the other which one is active. Raises AdminError where nobody answers."""
        failures = dict[str, AdminError]()
        standby: Member | None = None
        late: Member | None = None
        waiting = list(members)
        while waiting:
            member = waiting.pop(0)
            try:
                active = member.standby(_PATIENCE_S)
            except AdminError as error:
                failures[member.address] = error
                if isinstance(error, UnreachableError) and error.is_late:
                    late = late or member
                continue
            if active is None:
                return _Found(member, True, self.now_s())
            standby = standby or member
            waiting = _named_first(waiting, active)
        # Better one that is only slow, with all the time that the user gives it, than none.
        if (other := standby or late) is not None:
            return _Found(other, False, self.now_s())
        raise _nobody(failures)


def _named_first(members: Sequence[Member], address: str) -> list[Member]:
    return sorted(members, key=lambda one: one.address != address)


def is_question(method: Callable[..., object]) -> bool:
    """Return whether a call, named as in ``lambda stub: stub.GetNode``, changes nothing."""
    return cast("str", method(_Names())).startswith(_QUESTIONS)


class _Names:
    """A stub whose calls are their names."""

    def __getattr__(self, name: str) -> str:
        return name


def _nobody(failures: dict[str, AdminError]) -> AdminError:
    told = [
        f"{address}: {error.why if isinstance(error, UnreachableError) else error}"
        for address, error in failures.items()
    ]
    why = "; ".join(told)
    return UnreachableError(
        f"none of the controllers answers: {why}; look at 'systemctl status everstep-controller' "
        "on their machines, or name others with --controller HOST:PORT,HOST:PORT",
        why,
    )
