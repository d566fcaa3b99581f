"""Command isolation driver: a program of the site that speaks to whatever scheduler it has.

It is run for each call with its argument list and no shell, gets one JSON document on its standard
input, and answers with one on its standard output and exit code 0:

* ``{"call": "read"}`` → ``{"holds": {"n1": {"reason": "fan", "ours": false}, …}}``: every node that
  the scheduler withholds. ``ours`` tells what this program withheld for Everstep.
* ``{"call": "apply", "wanted": {"n1": {"withheld": true, "owners": ["automation"], "reason":
  "automation: Xid 79"}, "n2": {"withheld": false, …}}}`` → ``{"now": {"n1": {"reason": …, "ours":
  true}, "n2": null}, "failures": {"n3": "why"}}``: what is so now for each, null being free.

Another exit code is a failure of the whole call, with the last line of its standard error.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from everstep_common.config import setting
from everstep_common.printable import printable
from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.port import Applied, DriverError, DriverView

# Holds of 100,000 nodes, with a sentence each, are some 20 MB.
_ANSWER_BYTES_MAX = 64 << 20
_ERROR_BYTES_MAX = 64 << 10
_SHOWN_MAX = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDriverConfig:
    """The program that isolates nodes at the site's scheduler."""

    argv: tuple[str, ...] = setting(
        (),
        help="The program, by its absolute path, and its arguments; there is no shell. It "
        "reads and writes JSON, see docs/operations.md. Empty: no driver.",
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        if self.argv and not os.path.isabs(self.argv[0]):
            return [f"argv: expected a program by its absolute path, got {self.argv[0]!r}"]
        return []


class _WantedNode(msgspec.Struct):
    withheld: bool
    owners: tuple[str, ...]
    reason: str


class _Request(msgspec.Struct, omit_defaults=True):
    call: str
    wanted: dict[str, _WantedNode] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ReadAnswer:
    holds: Mapping[str, Hold]


@dataclass(frozen=True, slots=True)
class _ApplyAnswer:
    now: Mapping[str, Hold | None]
    failures: Mapping[str, str] = field(default_factory=dict)


class CommandDriver:
    """Driver that runs the program once for each call; one cut short ends with its children."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)

    async def read(self) -> DriverView:
        """See IsolationDriver. Raises DriverError, OSError."""
        answer = _answer(await self._run(_Request("read")), _ReadAnswer)
        return DriverView(answer.holds)

    async def apply(self, wanted: Sequence[WantedIsolation]) -> Applied:
        """See IsolationDriver. Raises DriverError, OSError."""
        nodes = {one.node: _WantedNode(one.withheld, one.owners, one.reason) for one in wanted}
        answer = _answer(await self._run(_Request("apply", nodes)), _ApplyAnswer)
        return Applied(answer.now, answer.failures)

    async def _run(self, request: _Request) -> bytes:
        transport, run = await asyncio.get_running_loop().subprocess_exec(
            _ProgramRun, *self._argv, cwd="/", start_new_session=True
        )
        try:
            run.send(transport, msgspec.json.encode(request))
            await run.over
        finally:
            if transport.get_returncode() is None:
                _kill_group(transport.get_pid())
            await run.exited
            transport.close()
        if code := transport.get_returncode():
            lines = run.errors.decode(errors="replace").strip().splitlines()
            said = f": {lines[-1][:_SHOWN_MAX]}" if lines else ""
            raise DriverError(f"{self._argv[0]} ended with exit code {code}{said}")
        return bytes(run.answer)


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

    def connection_lost(self, exc: Exception | None) -> None:
        """See SubprocessProtocol: it has exited, and all of its output was read."""
        del exc
        if not self.over.done():
            self.over.set_result(None)


def _kill_group(pid: int) -> None:
    """End the program with everything that it has started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _answer(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        shown = printable(body[:_SHOWN_MAX].decode(errors="replace"))
        what = f"its answer cannot be used: {error}; it begins with {shown!r}"
        raise DriverError(what) from error
