"""Node under fuzz: the real NodeJobs on this process's loop, with small limits and short waits."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_agent.vault.memory.pages import HugePages
from everstep_common.frames import encode
from everstep_common.launcher_messages import Join
from everstep_common.version import TRAINER_PROTOCOL, VERSION
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_from_wire
from fuzz.format import FormatError

JOB, JOB_ID, TOKEN, KEY = "demo", "demo-1", "secret", b"k" * 32
_MEMORY_BYTES = 8 * 1024 * 1024
# Nothing that a case does takes as long; who waits longer stands still.
_PATIENCE_S = 30.0


class Outlet:
    """Takes what the node tells the controller; all of it can be put into bytes."""

    def record(self, record: fleet_pb2.Record) -> None:
        """See Outlet of the jobs."""
        record.SerializeToString()

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """See Outlet of the jobs."""
        report.SerializeToString()


class Keeper:
    """Service manager that keeps no descriptors."""

    def store(self, name: str, fd: int) -> bool:
        """See DescriptorStore."""
        return False

    def remove(self, name: str) -> bool:
        """See DescriptorStore."""
        return False


@dataclass(frozen=True, slots=True)
class Node:
    """A node that serves, and where."""

    jobs: NodeJobs
    path: Path

    def order(self, **body: object) -> None:
        """Have the node do what a controller says."""
        told = fleet_pb2.Order(order_id="o", term=1, reason="fuzz", **body)  # type: ignore[arg-type]
        self.jobs.on_order(order_from_wire(told))  # type: ignore[arg-type]


def settings_of(folder: Path) -> JobsSettings:
    """Return settings under which a case takes milliseconds."""
    return JobsSettings(
        runtime_folder=folder,
        bulk_port=0,
        huge_pages=HugePages.NONE,
        memory_reserve_bytes=0,
        memory_bytes_max=_MEMORY_BYTES,
        slot_wait_s=0.01,
        slot_wait_max_s=0.01,
        transfer_timeout_s=0.2,
        settle_timeout_s=0.1,
        stop_patience_s=_PATIENCE_S,
        reconnect_grace_s=0.01,
        memory_kept_s=0.1,
        report_delay_s=0.0,
        storage_list_timeout_s=1.0,
        message_timeout_s=2.0,
    )


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Node]:
    """Have a node serve in a folder. What it raises is raised here."""
    settings = settings_of(folder)
    jobs = NodeJobs(settings, Outlet(), "node-1", Environment(stored_fds={}, keeper=Keeper()))
    task, ready = asyncio.create_task(jobs.run()), asyncio.create_task(jobs.ready.wait())
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    try:
        if not task.done():
            yield Node(jobs, settings.socket_path)
    finally:
        ended = task.done()
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()):
            raise error
        if ended:
            raise FormatError("the node has ended")


async def connected(address: str | tuple[str, int]) -> socket.socket:
    """Return a connection to a Unix socket, or to an address."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    await asyncio.get_running_loop().sock_connect(sock, address)
    return sock


async def say_to_end(sock: socket.socket, content: bytes) -> int:
    """Send all, then read until the other end closes; return how many bytes came."""
    loop, count = asyncio.get_running_loop(), 0
    try:
        async with asyncio.timeout(_PATIENCE_S):
            with suppress(OSError):  # the other end has heard enough
                await loop.sock_sendall(sock, content)
                sock.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while answer := await loop.sock_recv(sock, 65536):
                    count += len(answer)
    except TimeoutError as error:
        raise FormatError(f"the connection stood still for {_PATIENCE_S:g} s") from error
    finally:
        sock.close()
    return count


async def say_all(address: str | tuple[str, int], contents: Iterable[bytes]) -> None:
    """Say something on several connections at once."""
    socks = [(await connected(address), content) for content in contents]
    await asyncio.gather(*(say_to_end(sock, content) for sock, content in socks))


def join(**values: object) -> Join:
    """Return the first words of the launcher of an ordinary job."""
    usual = Join(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job=JOB,
        token=TOKEN,
        nodes_min=1,
        nodes_max=1,
        processes_per_node=4,
        reform=True,
        restarts_max=3,
        free_port=29500,
    )
    return replace(usual, **values)  # type: ignore[arg-type]


def start(generation: int, step: int | None = None) -> fleet_pb2.StartGeneration:
    """Return the order that starts the job on this node alone."""
    return fleet_pb2.StartGeneration(
        job=JOB,
        job_id=JOB_ID,
        lineage_id=JOB_ID,
        generation=generation,
        node_count=1,
        processes=4,
        world_size=4,
        master_address="127.0.0.1",
        master_port=1,
        restore_step=step,
        transfer_key=KEY,
    )


@asynccontextmanager
async def training(folder: Path) -> AsyncIterator[Node]:
    """Have a node serve that has a job with a launcher, in generation 1."""
    async with serving(folder) as node:
        launcher = await connected(str(node.path))
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(launcher, encode(join()))
            await loop.sock_recv(launcher, 65536)
            # It restores a step that nobody has: what is asked about it is looked for.
            node.order(start_generation=start(1, 1))
            await loop.sock_recv(launcher, 65536)
            yield node
        finally:
            launcher.close()
