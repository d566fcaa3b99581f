"""The uplink of an agent in a process of its own, whose event loop can be made to hang.

Arguments: the port of the controller, and the file of its secret. SIGUSR1 has the loop hang
until SIGUSR2; SIGTERM ends it.
"""

import asyncio
import random
import signal
import sys
from pathlib import Path

from everstep_agent.backoff import Backoff
from everstep_agent.persistence.agent_database import Remembered
from everstep_agent.persistence.disk_store import LostStore
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.uplink import Uplink, UplinkSettings
from everstep_common.clock import stamp_clock
from everstep_proto.generated import fleet_pb2
from everstep_proto.local.client import LocalAccess


class Nobody:
    """A Listener that does nothing of what it is told."""

    def on_welcome(self, welcome: fleet_pb2.Welcome, forgotten: bool) -> None:
        """See Listener."""

    def on_message(self, message: fleet_pb2.ControllerMessage) -> None:
        """See Listener."""

    def on_halted(self) -> None:
        """See Listener."""

    def on_away(self) -> None:
        """See Listener."""


async def main(port: int, secret: Path) -> None:
    """Keep a stream open until SIGTERM."""
    stamp, stop, loop = stamp_clock(), asyncio.Event(), asyncio.get_running_loop()
    outbox = Outbox(LostStore("test"), Remembered("outbox-1"), stamp, 100)
    settings = UplinkSettings(
        controllers=(LocalAccess(address=f"127.0.0.1:{port}", secret_file=secret),),
        connect_timeout_s=5.0,
        silence_s=60.0,
    )
    uplink = Uplink(settings, outbox, stamp, Backoff(random.Random(1), 0.02, 0.1))
    # Blocked, so that it wakes the loop that waits for it, as it does where it hangs.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    loop.add_signal_handler(signal.SIGUSR1, lambda: signal.sigwait({signal.SIGUSR2}))
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    hello = fleet_pb2.Hello(node="node-1", outbox=outbox.name)
    running = asyncio.create_task(uplink.run(lambda: hello, Nobody()))
    await stop.wait()
    await uplink.leave("told to stop", 1.0)
    running.cancel()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
