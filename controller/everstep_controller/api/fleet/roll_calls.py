"""Roll calls: all agents are asked at once whether they hear the controller, and counted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from everstep_common.orders import Ping
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.core.actions import CallRoll
from everstep_controller.core.events import Event, RollCalled
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import quorum
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

_NS = 1_000_000_000


@dataclass(slots=True)
class _OpenRoll:
    """A roll call that waits for answers."""

    call: CallRoll
    # Whose answers count, and who has given one.
    asked: frozenset[str]
    answered: set[str] = field(default_factory=set)

    @property
    def is_decided(self) -> bool:
        """Whether more than half have answered, or all who were asked."""
        heard = len(self.answered)
        return heard * 2 > self.call.expected or heard == len(self.asked)


class RollCalls:
    """The newest roll call; the one before it is over when a new one begins."""

    def __init__(
        self, state: Callable[[], State], sessions: Sessions, post: Callable[[Event], None]
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._post = post
        self._open: _OpenRoll | None = None

    def call(self, action: CallRoll) -> None:
        """Ask all agents that are looked for, each on its stream."""
        asked = frozenset(quorum.listed(self._state()))
        self._open = _OpenRoll(action, asked)
        message = fleet_pb2.ControllerMessage(ping=to_wire(Ping(action.id), fleet_pb2.Ping))
        for node in sorted(asked):
            self._sessions.send(node, message)
        loop = asyncio.get_running_loop()
        loop.call_later(action.timeout_ns / _NS, self._end, action.id)

    def take_answer(self, node: str, ping_id: str) -> bool:
        """Count an agent's answer; return whether it was one to a roll call, old or new."""
        roll = self._open
        if roll is None or ping_id != roll.call.id:
            return quorum.is_roll(ping_id)
        if node in roll.asked:
            roll.answered.add(node)
        if roll.is_decided:
            self._end(ping_id)
        return True

    def _end(self, roll_id: str) -> None:
        roll = self._open
        if roll is not None and roll.call.id == roll_id:
            self._open = None
            self._post(RollCalled(roll_id, len(roll.answered)))
