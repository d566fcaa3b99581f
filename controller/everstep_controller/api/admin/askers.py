"""Askers: who may see what the ranks of a job write and do, and the record of who has looked."""

import asyncio
import pwd
from dataclasses import replace
from typing import Protocol

from everstep_controller.core.model.job import JobRecord
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import Identity, Role

# A page that follows, or a command in a loop, is one line of the event list in this time.
_ONE_LINE_NS = 3_600_000_000_000
_LOOKS_MAX = 1000
_REASONS = {"output": "OutputRead", "stacks": "StacksRead", "slowness": "SlownessRead"}
# Whom a page knows by a role alone; no login has a space in it.
_NAMELESS = "somebody at the page"


class NotTheOwnerError(Exception):
    """A viewer asks for what ranks of somebody else's job write or do; one sentence."""


class _AskedFor(Protocol):
    """Request that a page may make for somebody."""

    @property
    def asked_for(self) -> admin_pb2.Person: ...


def asker(who: Identity, request: _AskedFor) -> Identity:
    """Return for whom a call is answered. Raises NotTheOwnerError where that is not the caller's.

    Nobody gets more than the caller: a viewer is itself, and a page gives no orders anyway.
    """
    person = request.asked_for
    if not (person.name or person.role):
        return who
    wanted = Role.OPERATOR if person.role == Role.OPERATOR.value else Role.VIEWER
    if who.role is Role.VIEWER:
        if wanted is Role.OPERATOR or person.name not in ("", who.name):
            raise NotTheOwnerError(
                f"{who.name} is viewer and asks for {person.name or 'an operator'}: that is for"
                " certificates of the role page"
            )
        return who
    return replace(who, name=person.name or _NAMELESS, role=wanted)


def may_read(who: Identity, job: JobRecord) -> bool:
    """Return whether somebody may see what a job wrote: an operator, or its user by the login."""
    if who.role is Role.OPERATOR:
        return True
    try:
        return pwd.getpwnam(who.name).pw_uid == job.spec.uid
    except (KeyError, ValueError):
        return False


class EventBook(Protocol):
    """Event list, and the time of the controller's timeline."""

    def now_ns(self) -> int:
        """Return the time."""
        ...

    def announce_look(self, subject: str, reason: str, message: str) -> None:
        """Add a line about somebody who looks."""
        ...


class Looks:
    """Looks at what ranks write and do: allowed or not, and each told in the event list."""

    def __init__(self, book: EventBook) -> None:
        self._book = book
        # When each was told last, the oldest first.
        self._told_ns: dict[tuple[str, str, str], int] = {}

    async def check(self, who: Identity, job: JobRecord, what: str) -> None:
        """Record that somebody looks at ``what`` of a job. Raises NotTheOwnerError."""
        # In a thread: whose login it is, a directory service may be asked.
        if not await asyncio.to_thread(may_read, who, job):
            raise NotTheOwnerError(
                f"{who.name} is {who.role.value}, and {job.name} is another user's (uid "
                f"{job.spec.uid}): output, stacks and slowness are for its user and operators"
            )
        name = who.name or "an operator of the controller's machine"
        if self._is_new((name, job.id, what), self._book.now_ns()):
            said = f"{name} ({who.role.value}) looked at the {what} of {job.name}"
            self._book.announce_look(job.name, _REASONS[what], said)

    def _is_new(self, look: tuple[str, str, str], now_ns: int) -> bool:
        """Return whether there was no such look within the hour, and remember it."""
        if now_ns - self._told_ns.get(look, -_ONE_LINE_NS) < _ONE_LINE_NS:
            return False
        self._told_ns.pop(look, None)
        while len(self._told_ns) >= _LOOKS_MAX:
            self._told_ns.pop(next(iter(self._told_ns)))
        self._told_ns[look] = now_ns
        return True
