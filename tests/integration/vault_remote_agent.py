"""An agent of jobs only, in a process of its own, whose controller is the test.

Arguments: runtime folder, the Unix socket on which the test listens, what stands for Python in
storage processes, and the node's name. What goes over the socket is a kind (one byte) and a
message: the agent says the address of its bulk listener (A), its pid (P), records (R) and reports
(V), the test says orders (O) and directives (D).
"""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_common.orders import VaultDirective
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from integration.vault_world import TIMEOUT_S, job_order, settings


class _Told:
    """Outlet to the test."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def say(self, kind: bytes, body: bytes) -> None:
        self._writer.write(kind + len(body).to_bytes(4, "big") + body)

    def record(self, record: fleet_pb2.Record) -> None:
        self.say(b"R", record.SerializeToString())

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        self.say(b"V", report.SerializeToString())


def _stop_at_sigterm() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def main(folder: Path, control: str, node: str) -> None:
    _stop_at_sigterm()
    reader, writer = await asyncio.open_unix_connection(control)
    told = _Told(writer)
    # As on a large node: on few processors a replica has one connection. A launcher of a test
    # comes back as late as a busy machine lets it.
    chosen = settings(folder, transfer_streams=2, reconnect_grace_s=3 * TIMEOUT_S)
    jobs = NodeJobs(chosen, told, node)
    async with asyncio.TaskGroup() as group:
        group.create_task(jobs.run())
        await jobs.ready.wait()
        told.say(b"A", jobs.bulk_address.encode())
        told.say(b"P", str(os.getpid()).encode())
        jobs.on_connected(forgotten=False)
        while True:
            kind = await reader.readexactly(1)
            body = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            if kind == b"O":
                jobs.on_order(job_order(fleet_pb2.Order.FromString(body)))
            else:
                wire = fleet_pb2.VaultDirective.FromString(body)
                jobs.on_directive(from_wire(VaultDirective, wire))


if __name__ == "__main__":
    runtime, control, interpreter, name = sys.argv[1:]
    sys.executable = interpreter
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(main(Path(runtime), control, name))
