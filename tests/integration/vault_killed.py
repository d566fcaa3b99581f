"""A node whose agent is a real process that may be killed: a holder keeps its memory meanwhile."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_common.orders import JobOrder, VaultDirective
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_to_wire
from everstep_proto.record_codec import to_wire
from integration.vault_clients import TIMEOUT_S
from integration.vault_outlet import Outlet
from integration.vault_world import Node, settings

_HERE = Path(__file__).parent
_HOLD = "import sys; from everstep_agent.commands.hold import main; sys.exit(main(sys.argv[1:]))"


def environ() -> dict[str, str]:
    """The surroundings of a process that imports what the tests import."""
    return {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}


class RemoteJobs:
    """The NodeJobs of a process that comes and goes: as much of it as a test uses."""

    def __init__(self, outlet: Outlet) -> None:
        self.pid = 0
        self.bulk_address = ""
        self._outlet = outlet
        self._writer: asyncio.StreamWriter | None = None
        self._up = asyncio.Condition()

    def on_order(self, order: JobOrder) -> None:
        self._say(b"O", order_to_wire(order, term=1).SerializeToString())

    def on_directive(self, directive: VaultDirective) -> None:
        self._say(b"D", to_wire(directive, fleet_pb2.VaultDirective).SerializeToString())

    async def kill(self) -> None:
        """Kill the agent and wait for the next one."""
        before = self.pid
        os.kill(before, signal.SIGKILL)
        await self.another_than(before)

    async def another_than(self, pid: int) -> None:
        """Wait until an agent serves that is not this one."""
        # A start takes a second or two of CPU, which a busy machine gives late.
        async with asyncio.timeout(3 * TIMEOUT_S), self._up:
            await self._up.wait_for(lambda: self.pid not in (0, pid))

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hear one agent process out."""
        try:
            while True:
                kind = await reader.readexactly(1)
                size = int.from_bytes(await reader.readexactly(4), "big")
                await self._take(kind, await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _take(self, kind: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if kind == b"R":
            self._outlet.record(fleet_pb2.Record.FromString(body))
        elif kind == b"V":
            self._outlet.vault_report(fleet_pb2.VaultReport.FromString(body))
        elif kind == b"A":
            self.bulk_address = body.decode()
        else:
            async with self._up:
                self.pid, self._writer = int(body), writer
                self._up.notify_all()

    def _say(self, kind: bytes, body: bytes) -> None:
        assert self._writer is not None, "no agent has connected yet"
        self._writer.write(kind + len(body).to_bytes(4, "big") + body)


@asynccontextmanager
async def killable(
    folder: Path, interpreter: str = sys.executable, name: str = "node-1"
) -> AsyncIterator[tuple[Node, RemoteJobs]]:
    """A node of one agent process after the other, and what stands for its NodeJobs.

    Storage processes are started with the interpreter.
    """
    outlet = Outlet()
    remote = RemoteJobs(outlet)
    control = str(folder / "control")
    server = await asyncio.start_unix_server(remote.connected, control)
    program = (sys.executable, str(_HERE / "vault_remote_agent.py"))
    agent = (*program, str(folder / "run"), control, interpreter, name)
    hold = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _HOLD, "--die-with-parent", "--", *agent), env=environ()
    )
    try:
        await remote.another_than(0)
        yield Node(name, remote, outlet, settings(folder / "run")), remote  # type: ignore[arg-type]
    finally:
        hold.terminate()
        await hold.wait()
        server.close()
