"""Doors of a controller: their processes, started, watched, started anew, and ended with it."""

import asyncio
import logging
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from everstep_common.addresses import split_address
from everstep_controller.api.fleet.servicer import StreamHandler
from everstep_controller.api.server import ListenError
from everstep_controller.doors.link import DoorLink
from everstep_controller.doors.messages import DoorSettings

logger = logging.getLogger(__name__)

_DOOR = "everstep_controller.doors.door"
# Importing takes a door a second, and longer on a machine that is busy.
_START_S = 60.0
_AGAIN_S = 1.0
_END_S = 3.0
# So long streams may take that were told to end.
_TELL_S, _LOOK_S = 1.0, 0.01


@dataclass(slots=True)
class _Door:
    process: asyncio.subprocess.Process
    link: DoorLink
    lost: asyncio.Event


class Doors:
    """So many processes at one address; opened on a running loop."""

    def __init__(self, number: int, settings: DoorSettings, handler: StreamHandler) -> None:
        self._number, self._settings, self._handler = number, settings, handler
        self._doors: list[_Door] = []
        self._watching: list[asyncio.Task[None]] = []
        self._reserved: socket.socket | None = None

    def reserve(self) -> int:
        """Take the port, and return it; the doors share it. Raises ListenError."""
        host, port = split_address(self._settings.listen)
        try:
            reserved = _reserved(host, int(port))
        except OSError as error:
            self._remove_services()
            raise ListenError(
                f"listen: {self._settings.listen} cannot be listened on: {error.strerror or error};"
                " 'ss -ltnp' shows who uses the port"
            ) from error
        self._reserved = reserved
        taken = int(reserved.getsockname()[1])
        listen = f"[{host}]:{taken}" if ":" in host else f"{host}:{taken}"
        self._settings = msgspec.structs.replace(self._settings, listen=listen)
        return taken

    async def start(self) -> None:
        """Start them, and wait until all listen. Raises ListenError."""
        self._doors = list(await asyncio.gather(*(self._open() for _ in range(self._number))))
        self._watching = [
            asyncio.create_task(self._watch(at), name=f"door {at}") for at in range(self._number)
        ]

    async def stop(self) -> None:
        """End them: each with the streams that it has."""
        for task in self._watching:
            task.cancel()
        until_s = asyncio.get_running_loop().time() + _TELL_S
        while any(len(one.link) for one in self._doors):
            if asyncio.get_running_loop().time() > until_s:
                break
            await asyncio.sleep(_LOOK_S)
        for one in self._doors:
            one.link.close()
        await asyncio.gather(*(_ended(one.process) for one in self._doors))
        if self._reserved is not None:
            self._reserved.close()
        self._remove_services()

    def _remove_services(self) -> None:
        """Remove the folder of the services' socket."""
        shutil.rmtree(Path(self._settings.services).parent, ignore_errors=True)

    @property
    def processes(self) -> list[int]:
        """Return the numbers of their processes."""
        return [one.process.pid for one in self._doors]

    async def _watch(self, at: int) -> None:
        """Start a door anew whenever it ends; its agents connect to the others meanwhile."""
        while True:
            await self._doors[at].lost.wait()
            code = await _ended(self._doors[at].process)
            logger.warning("a process that accepts agents ended (%d), and is started anew", code)
            while True:
                await asyncio.sleep(_AGAIN_S)
                try:
                    self._doors[at] = await self._open()
                except ListenError as error:
                    logger.error("%s", error)
                else:
                    break

    async def _open(self) -> _Door:
        here, there = socket.socketpair()
        lost = asyncio.Event()
        here.setblocking(False)
        with there:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _DOOR),
                msgspec.json.encode(self._settings).decode(),
                str(there.fileno()),
                pass_fds=(there.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        loop = asyncio.get_running_loop()
        _, link = await loop.connect_accepted_socket(
            lambda: DoorLink(self._handler, lost.set), here
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_START_S):
                said = await process.stdout.readline()
        except TimeoutError:
            said = b""
        if said.strip() != b"listening":
            link.close()
            await _ended(process)
            raise ListenError(
                f"a process that accepts agents at {self._settings.listen} did not start; the "
                "lines before this one say why"
            )
        return _Door(process, link, lost)


def _reserved(host: str, port: int) -> socket.socket:
    """Return a socket that has a port, which the doors share. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    reserved = socket.socket(found[0], socket.SOCK_STREAM)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(found[4])
    except OSError:
        reserved.close()
        raise
    return reserved


async def _ended(process: asyncio.subprocess.Process) -> int:
    """Wait until a process that was told to end has ended, or kill it; return its code."""
    try:
        async with asyncio.timeout(_END_S):
            return await process.wait()
    except TimeoutError:
        process.kill()
        return await process.wait()


def services_socket() -> Path:
    """Return the path of a socket in a new folder that only this user may enter."""
    return Path(tempfile.mkdtemp(prefix="everstep-services-")) / "socket"
