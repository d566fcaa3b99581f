"""Storage worker client: starts a worker, asks it with a deadline, abandons one that hangs."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from everstep_agent.ipc.connection import Connection
from everstep_agent.ipc.line_process import where_it_waits
from everstep_agent.ipc.peer import Peer
from everstep_agent.storage.worker import messages
from everstep_common.frames import FrameError

logger = logging.getLogger(__name__)

T = TypeVar("T")
_PROGRAM = Path(__file__).parent / "worker/main.py"
# Interpreter and imports take a tenth of a second; a node that swaps takes longer. One that is
# given up begins anew, so it is not given up before a listing is (storage_stall_timeout_s).
_START_S = 60.0
# How long a killed process may take to be gone, which is at once unless the kernel holds it.
_DEATH_S = 1.0
# How long an idle worker may take to exit when it is told to.
_GOODBYE_S = 2.0


class ChildExit:
    """Watch on one child process from its start. Event loop only."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Begin. Raises OSError when no descriptor is left for it."""
        self._process = process
        self._exited = asyncio.Event()
        self._descriptor = os.pidfd_open(process.pid)
        # The end of a pipe at whose closing the kernel kills the process; -1: it has none.
        self._lifeline = -1
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    def tie(self) -> int:
        """Return a descriptor for the process, which lives only as long as the other end is open.

        Raises OSError.
        """
        theirs, ours = os.pipe()
        self._lifeline = ours
        if self._exited.is_set():
            self.cut()
        return theirs

    def cut(self) -> None:
        """Have the kernel kill it, whoever its user is."""
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    async def wait(self, seconds: float) -> bool:
        """Return whether it is dead, waiting at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        except TimeoutError:
            return False
        return True

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.cut()
        # Returns at once: the pidfd is readable only when the process's last thread has ended.
        self._process.wait()
        self._exited.set()


class StorageError(OSError):
    """Storage did not do what it was asked; one sentence."""


@dataclass(frozen=True, slots=True)
class JobUser:
    """Whose rights a job's files are opened with. ``environment`` is never written anywhere."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    umask: int = 0o077
    environment: dict[str, str] = field(default_factory=dict)


class StorageWorkerProcess:
    """One process that is a job's user, and what it was asked last."""

    def __init__(self, bucket: bool) -> None:
        """Start it. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", os.fspath(_PROGRAM)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                # None of the agent's environment: the worker gets only what its user may know.
                env={"LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            self._exit = ChildExit(self.process)
        except OSError:
            ours.close()
            self.process.kill()
            self.process.wait()
            raise
        self._bucket = bucket
        self._killed = False
        self._connection = Connection(ours, Peer(self.process.pid, os.geteuid()))

    async def assume_user(self, user: JobUser) -> None:
        """Have it take the user's rights. Raises StorageError."""
        request = messages.AssumeUser(
            uid=user.uid,
            gid=user.gid,
            groups=user.groups,
            umask=user.umask,
            environment=user.environment,
            bucket=self._bucket,
        )
        try:
            lifeline = self._exit.tie()
        except OSError as error:
            raise StorageError(f"no storage worker: {error}") from error
        try:
            await self.ask(request, messages.UserAssumed, [lifeline], _START_S)
        finally:
            os.close(lifeline)

    async def ask(self, request: object, answer: type[T], fds: Sequence[int], stall_s: float) -> T:
        """Return its answer; it may take long as long as bytes move. Raises StorageError."""
        try:
            async with asyncio.timeout(stall_s):
                await self._connection.send(request, fds)
            while True:
                async with asyncio.timeout(stall_s):
                    said = await self._connection.receive(messages.FROM_WORKER)
                if isinstance(said, answer):
                    return said
                if isinstance(said, messages.RequestFailed):
                    raise StorageRefusedError(said.reason, said.kind)
                if not isinstance(said, messages.BytesMoved):
                    raise StorageError(f"an answer that was not asked for: {type(said).__name__}")
        except TimeoutError as error:
            waits = where_it_waits(Path("/proc"), self.process.pid)
            raise StorageError(f"nothing moved for {stall_s:g} s: {waits}") from error
        except (FrameError, ConnectionError) as error:
            raise StorageError(f"the storage worker ended: {error}") from error

    def dismiss(self) -> None:
        """Let it end by itself."""
        self._connection.close()

    async def wait_exit(self) -> bool:
        """Wait until it has ended; False when not even a signal ends it."""
        self.dismiss()
        if not self._killed and await self._exit.wait(_GOODBYE_S):
            return True
        return await self.kill()

    async def kill(self) -> bool:
        """Kill it; False when the kernel holds it in a call, so that it does not die."""
        self._killed = True
        self._connection.close()
        try:
            self.process.kill()
        except ProcessLookupError:
            pass
        except PermissionError:
            self._exit.cut()  # it is its user's by now, and the agent has no CAP_KILL
        return await self._exit.wait(_DEATH_S)


class StorageRefusedError(StorageError):
    """The process is well, and says why the request cannot be done; ``kind`` for who acts on it."""

    def __init__(
        self, reason: str, kind: messages.RefusalKind = messages.RefusalKind.OTHER
    ) -> None:
        super().__init__(reason)
        self.kind = kind
