"""Program of a scheduler or of the site: one run, with bounds on what it writes; no shell."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everstep_controller.drivers.port import DriverError

# Holds of 100,000 nodes, with a sentence each, are some 20 MB.
_ANSWER_BYTES_MAX = 64 << 20
_ERROR_BYTES_MAX = 64 << 10
_SHOWN_MAX = 200
# A program that has ended has written its answer. What it started and left running, such as ssh's
# master connection, may keep its output open for hours.
_LEFT_OPEN_S = 2.0


@dataclass(frozen=True, slots=True)
class FinishedProgram:
    """What came of a run: its exit code, what it wrote, and the end of what it said of errors."""

    code: int
    answer: bytes
    errors: str


async def run_program(argv: Sequence[str], request: bytes = b"") -> bytes:
    """Return what a program writes for what it reads; one cut short ends with its children.

    Raises DriverError where its exit code is not 0, with its last line of standard error; OSError.
    """
    done = await finished_program(argv, request)
    if done.code:
        lines = done.errors.strip().splitlines()
        said = f": {lines[-1][:_SHOWN_MAX]}" if lines else ""
        raise DriverError(f"{argv[0]} ended with exit code {done.code}{said}")
    return done.answer


async def finished_program(
    argv: Sequence[str], request: bytes = b"", environ: Mapping[str, str] | None = None
) -> FinishedProgram:
    """Return what came of a program, whatever its exit code; ``environ``: all of it, None: ours.

    One that is cut short ends with its children. Raises DriverError where it writes too much;
    OSError.
    """
    transport, run = await asyncio.get_running_loop().subprocess_exec(
        _ProgramRun, *argv, cwd="/", start_new_session=True, env=environ
    )
    try:
        run.send(transport, request)
        await run.over
    except BaseException:
        # Cut short, or too much was written: also what it left running when it ended.
        _kill_group(transport.get_pid())
        run.answer.clear()  # the error, with its frames, may outlive this by hours
        raise
    finally:
        await run.exited
        transport.close()
    errors = run.errors.decode(errors="replace")
    return FinishedProgram(transport.get_returncode() or 0, bytes(run.answer), errors)


class _ProgramRun(asyncio.SubprocessProtocol):
    """One run of the program: what it writes, within bounds, and its end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.answer, self.errors = bytearray(), bytearray()
        # It has ended and closed what it wrote to; or it has written too much.
        self.over: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[None] = loop.create_future()

    def send(self, transport: asyncio.SubprocessTransport, request: bytes) -> None:
        """Write the request; a program that reads none of it may have an answer all the same."""
        pipe = transport.get_pipe_transport(0)
        if isinstance(pipe, asyncio.WriteTransport):
            pipe.write(request)
            pipe.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep a part of the answer, or the end of what is said on standard error."""
        if fd != 1:
            self.errors = (self.errors + data)[-_ERROR_BYTES_MAX:]
        elif len(self.answer) + len(data) <= _ANSWER_BYTES_MAX:
            self.answer += data
        elif not self.over.done():
            self.over.set_exception(DriverError(f"it wrote more than {_ANSWER_BYTES_MAX} bytes"))

    def process_exited(self) -> None:
        """See SubprocessProtocol."""
        self.exited.set_result(None)
        asyncio.get_running_loop().call_later(_LEFT_OPEN_S, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        """See SubprocessProtocol: it has exited, and all of its output was read."""
        del exc
        self._end()

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


def _kill_group(pid: int) -> None:
    """End the program with everything that it has started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
