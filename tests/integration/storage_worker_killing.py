"""A storage process that ends its agent at a message; else it is the real one.

Argument: a file that, while it is there, says when: a request, a moment of it, a signal.
"""

import os
import sys
from pathlib import Path

from everstep_agent.storage.worker import main
from everstep_agent.storage.worker.messages import CARRIERS, TO_WORKER, BytesMoved
from everstep_common.frames import Channel, FrameError


class KillingChannel(Channel):
    """The connection to the agent: knows which message goes over it."""

    order: Path
    _asked = ""

    def receive(self, timeout_s: float | None) -> tuple[object, list[int]]:
        received = super().receive(timeout_s)
        self._asked = type(received[0]).__name__
        self._strike("received")
        return received

    def send(self, message: object) -> None:
        if isinstance(message, BytesMoved):
            self._strike("at work")
            super().send(message)
            return
        self._strike("done")
        super().send(message)
        self._strike("answered")

    def _strike(self, moment: str) -> None:
        if not self.order.exists():
            return
        asked, when, number = self.order.read_text().split("/")
        if (asked, when) == (self._asked, moment):
            self.order.unlink()
            os.kill(os.getppid(), int(number))


if __name__ == "__main__":
    channel = KillingChannel(main.agent_socket(), TO_WORKER, CARRIERS)
    channel.order = Path(sys.argv[1])
    try:
        main.main(channel)
    except (ConnectionError, FrameError, KeyboardInterrupt):
        sys.exit(0)
