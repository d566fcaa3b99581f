"""Controllers in the admin API: who is active, who stands by, and how one hands over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from everstep_controller.api.admin.errors import OrderRefusedError
from everstep_controller.core.model.state import CONTROLLER
from everstep_controller.journal.port import ControllerSeen
from everstep_controller.journal.reading import JournalReads
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.standby.told import ControllerTold, controller_told
from everstep_proto.generated import admin_pb2

# A standby tells of itself twice a second; one that was silent for so long may not take over soon.
_FRESH_S = 3.0
_BEHIND_MAX = 1000


@dataclass(frozen=True, slots=True)
class OwnPart:
    """The controller that answers."""

    told: ControllerTold
    # It writes the journal.
    is_active: bool
    # Ends it in good order, so that the standby at an address takes over.
    hand_over: Callable[[str], None]


class ControllerOperations:
    """Calls about the controllers of the cluster. They raise JournalAccessError."""

    def __init__(self, runtime: Runtime, reads: JournalReads, own: OwnPart) -> None:
        self._runtime, self._reads, self._own = runtime, reads, own
        self._started_ns = runtime.now_ns()

    async def list(self) -> admin_pb2.ListControllersReply:
        """Return all of them."""
        seen, head, replication = await self._reads.ask(
            lambda reader: (reader.controllers(), reader.last()[0], reader.replication())
        )
        term = self._runtime.state.term
        if not seen:
            line = self._line_of(ControllerSeen(True, "", 0.0, 0.0), head)
            line.since_s = (self._runtime.now_ns() - self._started_ns) / 1e9
            return admin_pb2.ListControllersReply(controllers=[line], term=term, alone=True)
        lines = [self._line_of(one, head) for one in seen]
        reply = admin_pb2.ListControllersReply(controllers=lines, term=term)
        if replication is not None:
            reply.database, reply.synchronous = replication.server, replication.is_synchronous
            reply.database_standbys.extend(str(one) for one in replication.standbys)
        return reply

    def _line_of(self, seen: ControllerSeen, head: int) -> admin_pb2.ControllerLine:
        own, told = self._own.told, controller_told(seen.told)
        answers = (told.host, told.pid) == (own.host, own.pid) or not seen.told
        if not seen.told:
            told = own
        return admin_pb2.ControllerLine(
            address=told.address,
            # One that has just taken the journal begins to act in a moment.
            active=seen.is_writer and (self._own.is_active or not answers),
            answers=answers,
            host=told.host,
            pid=told.pid,
            version=told.version,
            since_s=seen.since_s,
            seen_s=seen.seen_s,
            behind_events=0 if seen.is_writer else max(0, head - told.seq),
            behind_s=told.behind_s,
        )

    async def hand_over(self, operator: str, reason: str) -> admin_pb2.HandOverReply:
        """Let a standby take over. Raises OrderRefusedError where none follows closely."""
        listed = await self.list()
        if listed.alone:
            raise OrderRefusedError(
                "the journal is a file, which no other controller can follow; with a journal in "
                "PostgreSQL there can be standbys (docs/postgresql.md)"
            )
        standbys = [one for one in listed.controllers if not one.active]
        fresh = [one for one in standbys if one.seen_s <= _FRESH_S]
        fit = [one for one in fresh if one.behind_events < _BEHIND_MAX]
        if not fit:
            raise OrderRefusedError(_why_none(standbys))
        successor = min(fit, key=lambda one: (one.behind_events, one.seen_s))
        why = f": {reason}" if reason else ""
        self._runtime.announce_look(
            CONTROLLER, "HandedOver", f"{operator} hands over to {_named(successor)}{why}"
        )
        self._own.hand_over(successor.address)
        return admin_pb2.HandOverReply(successor=successor)


def _why_none(standbys: Sequence[admin_pb2.ControllerLine]) -> str:
    if not standbys:
        return (
            'no controller stands by; start one with role = "standby" and the same journal on '
            "another machine (docs/postgresql.md), and see it in 'everstep controllers'"
        )
    first = standbys[0]
    return (
        f"no standby follows closely enough: {_named(first)} was heard of {first.seen_s:.0f} s ago "
        f"and is {first.behind_events} events behind; 'everstep controllers' shows them all"
    )


def _named(line: admin_pb2.ControllerLine) -> str:
    return line.address or f"process {line.pid} on {line.host}"
