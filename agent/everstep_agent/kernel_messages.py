"""Recent kernel messages: the newest worth showing, sent to the controller when they change."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from everstep_agent.detectors.kernel import KernelLine, worth_showing
from everstep_agent.detectors.kernel.rules.builtin import RULES
from everstep_agent.detectors.kernel.rules.rule import LineRules
from everstep_common.clock import Stamp, StampClock
from everstep_common.reports import KernelMessage, KernelMessages
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

LINES_MAX = 20
# A driver in trouble writes hundreds of lines a second; nobody reads faster than this.
_PAUSE_S = 5.0


class RecentKernelMessages:
    """Newest kernel messages that are worth showing. Event loop only."""

    def __init__(
        self,
        stamp: StampClock,
        send: Callable[[fleet_pb2.KernelMessages], None],
        rules: LineRules = RULES,
    ) -> None:
        self._rules = rules
        self._stamp = stamp
        self._send = send
        self._messages: deque[KernelMessage] = deque(maxlen=LINES_MAX)
        self._changed = asyncio.Event()

    def add_lines(self, lines: Sequence[KernelLine]) -> None:
        """Add lines in the order in which they were logged; most are not worth showing."""
        if shown := worth_showing(lines, self._rules):
            now = self._stamp()
            self._messages.extend(_message(line, now) for line in shown[-LINES_MAX:])
            self._changed.set()

    async def run(self) -> None:
        """Send all of them after a change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            messages = KernelMessages(tuple(self._messages))
            self._send(to_wire(messages, fleet_pb2.KernelMessages))
            await asyncio.sleep(_PAUSE_S)


def _message(line: KernelLine, now: Stamp) -> KernelMessage:
    # The kernel's stamps stand still in suspend, the boot clock does not: near enough for people.
    age_ns = 0 if line.boot_ns is None else max(0, now.boot_ns - line.boot_ns)
    logged = Stamp(now.boot_id, now.boot_ns - age_ns, max(0, now.wall_ns - age_ns))
    return KernelMessage(logged, line.level, line.text, line.injected)
