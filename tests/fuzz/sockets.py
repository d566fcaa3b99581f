"""Fuzz over real sockets: a real agent and a real controller, each in a process of its own.

What is looked at from outside: the daemon lives, it answers a healthy caller after each hundred
cases, it logs no traceback, it keeps its descriptors, and its memory does not grow with the cases.
"""

import asyncio
import contextlib
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
from harness.daemons import agent_command, controller_command, shown
from harness.processes import free_port, wait_for_port

from everstep_common.frames import encode
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import TlsSettings, aio_channel
from fakes.waits import eventually
from fuzz.choices import Choices
from fuzz.controller_world import ask, stream
from fuzz.formats import agent_streams, load_format
from fuzz.formats.bulk import say_in_bulk
from fuzz.node_world import connected, join, say_all
from fuzz.session import GROWTH_BYTES_MIN, GROWTH_BYTES_PER_CASE_MAX

_LOOK_EVERY = 100
_SAMPLES_WARM = 0.25
_DESCRIPTORS_SPARE = 64
# The controller looks for garbage after 400,000 more objects (everstep_controller/main.py): it
# grows for some ten thousand cases, then no more.
_GARBAGE_BYTES = 192 * 1024 * 1024
_INPUT_BYTES = (20, 100, 600)
_START_S = 60.0
# The kernel's table of a kind of socket, and the state of one that waits for anybody, as proc(5).
_LISTENING: dict[int, tuple[str, str]] = {
    socket.SOCK_STREAM: ("tcp", "0A"),
    socket.SOCK_DGRAM: ("udp", "07"),
}

# Says one case.
_Say = Callable[[object], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SocketRun:
    """What came of the cases of one format over a real socket."""

    format: str
    cases: int
    cases_per_s: float
    growth_bytes: int
    finds: list[str]


@dataclass(frozen=True, slots=True)
class _Daemon:
    """A daemon under test: its process, its log, and what asks whether it is well."""

    process: "subprocess.Popen[str]"
    log: Path
    say: _Say
    is_well: Callable[[], Awaitable[None]]
    # What its memory may grow by beside what each case may add.
    spare_bytes: int = 0

    def held(self) -> tuple[int, int]:
        """Return its descriptors, and its resident memory in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        descriptors = len(os.listdir(f"/proc/{self.process.pid}/fd"))
        return descriptors, pages * os.sysconf("SC_PAGE_SIZE")


def fuzz_sockets(names: Sequence[str], cases: int, seed: int) -> list[SocketRun]:
    """Send so many cases of each format that has a socket to the daemon that takes them."""
    return [asyncio.run(_fuzz(name, cases, seed)) for name in names if name in _OPENERS]


async def _fuzz(name: str, cases: int, seed: int) -> SocketRun:
    chosen, format = random.Random(seed), load_format(name)
    finds: list[str] = []
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        async with _OPENERS[name](Path(folder)) as daemon:
            begin_s, samples = time.monotonic(), [daemon.held()]
            for number in range(1, cases + 1):
                data = chosen.randbytes(chosen.choice(_INPUT_BYTES))
                try:
                    await daemon.say(format.make(Choices(data)))
                    if number % _LOOK_EVERY == 0:
                        await daemon.is_well()
                        samples.append(daemon.held())
                except Exception as error:  # noqa: BLE001 - whatever it is, the case has found it
                    finds.append(f"case {number} of seed {seed}: {error!r}")
                if finds or daemon.process.poll() is not None:
                    break
            took_s = time.monotonic() - begin_s
            finds += _problems(daemon, samples, number)
    return SocketRun(name, number, number / took_s, _growth(samples), finds)


def _problems(daemon: _Daemon, samples: Sequence[tuple[int, int]], cases: int) -> list[str]:
    found = []
    if daemon.process.poll() is not None:
        found.append(f"the daemon has ended with status {daemon.process.returncode}")
    text = daemon.log.read_text(errors="replace")
    if "Traceback" in text:
        found.append(text[text.index("Traceback") :][:2000])
    if samples[-1][0] > samples[0][0] + _DESCRIPTORS_SPARE:
        found.append(f"descriptors grew from {samples[0][0]} to {samples[-1][0]}")
    spare = max(GROWTH_BYTES_MIN, daemon.spare_bytes, cases * GROWTH_BYTES_PER_CASE_MAX)
    if _growth(samples) > spare:
        found.append(f"memory grew by {_growth(samples)} bytes after it was warm")
    return found


def _growth(samples: Sequence[tuple[int, int]]) -> int:
    """Return what the memory grew by after the first quarter of the cases."""
    return samples[-1][1] - samples[int(len(samples) * _SAMPLES_WARM)][1]


@contextlib.contextmanager
def _started(command: Sequence[str | Path], log: Path) -> Iterator["subprocess.Popen[str]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, text=True
        )
        try:
            yield process
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()


@asynccontextmanager
async def _controller(
    folder: Path,
) -> AsyncIterator[tuple["subprocess.Popen[str]", grpc.aio.Channel]]:
    port = free_port()
    with _started(controller_command(folder, port), folder / "log") as process:
        await asyncio.to_thread(wait_for_port, port, process, _START_S)
        async with aio_channel(f"127.0.0.1:{port}", TlsSettings()) as channel:
            yield process, channel


@asynccontextmanager
async def _agents_of_controller(folder: Path) -> AsyncIterator[_Daemon]:
    number = 0
    async with _controller(folder) as (process, channel):

        async def say(case: object) -> None:
            nonlocal number
            number += 1
            assert isinstance(case, tuple)
            said = [agent_streams.numbered(message, number) for message in case]
            await stream(channel, agent_streams.METHOD, said, shown(folder))

        yield _Daemon(process, folder / "log", say, _asking(channel, folder), _GARBAGE_BYTES)


@asynccontextmanager
async def _admin_of_controller(folder: Path) -> AsyncIterator[_Daemon]:
    async with _controller(folder) as (process, channel):

        async def say(case: object) -> None:
            call = case
            known = shown(folder)
            await ask(channel, call.method, call.request, streams=call.streams, shown=known)  # type: ignore[attr-defined]

        yield _Daemon(process, folder / "log", say, _asking(channel, folder), _GARBAGE_BYTES)


def _asking(channel: grpc.aio.Channel, folder: Path) -> Callable[[], Awaitable[None]]:
    request = admin_pb2.GetControllerRequest().SerializeToString()
    method = "/everstep.admin.v1.Admin/GetController"

    async def is_well() -> None:
        answer = await cast("Any", channel.unary_unary(method))(
            request, timeout=10.0, metadata=shown(folder)
        )
        assert admin_pb2.ControllerDetail.FromString(answer).version

    return is_well


@asynccontextmanager
async def _agent(folder: Path) -> AsyncIterator[tuple["subprocess.Popen[str]", Path, int]]:
    metrics, path = free_port(), folder / "run" / "agent.sock"
    command = agent_command(folder, free_port(), metrics)
    with _started(command, folder / "log") as process:
        await asyncio.to_thread(wait_for_port, metrics, process, _START_S)
        await eventually(path.exists, _START_S)
        yield process, path, metrics


@asynccontextmanager
async def _frames_of_agent(folder: Path) -> AsyncIterator[_Daemon]:
    async with _agent(folder) as (process, path, _):

        async def say(case: object) -> None:
            assert isinstance(case, tuple)
            await say_all(str(path), case)

        yield _Daemon(process, folder / "log", say, _joining(path))


@asynccontextmanager
async def _bulk_of_agent(folder: Path) -> AsyncIterator[_Daemon]:
    async with _agent(folder) as (process, path, metrics):
        address = ("127.0.0.1", _port_of(process.pid, socket.SOCK_STREAM, metrics))

        async def say(case: object) -> None:
            await say_in_bulk(address, case)  # type: ignore[arg-type]

        yield _Daemon(process, folder / "log", say, _joining(path))


@asynccontextmanager
async def _liveness_of_agent(folder: Path) -> AsyncIterator[_Daemon]:
    async with _agent(folder) as (process, path, _):
        address = ("127.0.0.1", _port_of(process.pid, socket.SOCK_DGRAM))
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sender:

            async def say(case: object) -> None:
                assert isinstance(case, tuple)
                for datagram in case:
                    sender.sendto(datagram, address)

            yield _Daemon(process, folder / "log", say, _joining(path))


def _joining(path: Path) -> Callable[[], Awaitable[None]]:
    """Return what asks by a launcher of its own, which waits for the controller as any would."""

    async def is_well() -> None:
        sock, loop = await connected(str(path)), asyncio.get_running_loop()
        with sock:
            async with asyncio.timeout(10.0):
                await loop.sock_sendall(sock, encode(join(job="healthy")))
                assert await loop.sock_recv(sock, 65536), "a healthy launcher was not answered"

    return is_well


def _port_of(pid: int, kind: int, *others: int) -> int:
    """Return the port on which a process has a socket of a kind, besides those that are known."""
    links = (_link(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    table, state = _LISTENING[kind]
    rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
    mine = (row[1] for row in rows if row[9] in inodes and row[3] == state)
    (port,) = {int(address.partition(":")[2], 16) for address in mine} - set(others)
    return port


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed since
        return ""


_OPENERS = {
    "launcher frames": _frames_of_agent,
    "trainer frames": _frames_of_agent,
    "bulk": _bulk_of_agent,
    "agent streams": _agents_of_controller,
    "admin calls": _admin_of_controller,
    "liveness": _liveness_of_agent,
}
