"""NCCL RAS client: asks the RAS of a job's NCCL once, over its line protocol (version 2).

Each process of NCCL listens on the node's port and the kernel picks one, which may be the one that
hangs: another is tried until one greets, and only that one is asked.
"""

import contextlib
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from everstep_common.hangs.ras_answer import ANSWER_MAX, RasError, is_safe, read_json, read_text
from everstep_common.hangs.reports.rank_report import RankHangReport

# NCCL's own, unless NCCL_RAS_ADDR says otherwise.
ADDRESS = "localhost:28028"
# All of it: what is not told by then is not known.
DEADLINE_S = 1.5
# A process that is well greets within a millisecond.
_GREETING_S = 0.3
_TRIES_MAX = 4
# NCCL's wait for ranks that do not answer, in whole seconds; the least that there is.
_LEG_S = 1
_GREETING_MAX = 256
_ADDRESS_MAX = 300
_READ_BYTES = 256 * 1024


class RasUse(Enum):
    """Whether NCCL RAS is asked when a job is stopped because it hung."""

    # From the version on that does not crash a job which still lives.
    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class RasSettings:
    """Settings of RAS for one job: the operator's, and those of NCCL itself."""

    use: RasUse
    address: str

    @classmethod
    def of(cls, use: RasUse, environ: Mapping[str, str]) -> "RasSettings":
        """Return them; NCCL's are variables of the job."""
        off = environ.get("NCCL_RAS_ENABLE", "1").strip() == "0"
        address = environ.get("NCCL_RAS_ADDR", "").strip()[:_ADDRESS_MAX] or ADDRESS
        return cls(RasUse.NEVER if off else use, address)

    def may_ask(self, reports: Sequence[RankHangReport]) -> bool:
        """Return whether it may be asked beside these ranks of the node."""
        versions = {
            library.version
            for report in reports
            for library in report.libraries
            if library.name == "nccl"
        }
        # While a communicator is made, nobody may be asked; one that has worked is made.
        works = any(group.completed for report in reports for group in report.groups)
        if self.use is RasUse.NEVER or not versions or not works:
            return False
        return self.use is RasUse.ALWAYS or all(map(is_safe, versions))


def ask_ras(address: str, pids: Iterable[int], within_s: float = DEADLINE_S) -> tuple[str, ...]:
    """Return what RAS tells of missing ranks, in words. Raises RasError."""
    ends_s = time.monotonic() + min(within_s, DEADLINE_S)
    why = "nobody listens"
    for _ in range(_TRIES_MAX):
        try:
            with _greeted(address, ends_s) as stream:
                return stream.report(pids)
        except _NotGreetedError as error:
            why = str(error)
            if time.monotonic() >= ends_s:
                break
    raise RasError(f"NCCL RAS at {address}: {why}")


class _NotGreetedError(Exception):
    """Whoever listens has not answered the greeting: it may hang, or is no RAS."""


class _Stream:
    """One connection to RAS, within a deadline and a number of bytes."""

    def __init__(self, connection: socket.socket, ends_s: float) -> None:
        self._connection = connection
        self._ends_s = ends_s
        self._received = bytearray()

    def command(self, line: str, within_s: float) -> str:
        """Send a command, and return the line that answers it. Raises OSError."""
        self._connection.settimeout(min(within_s, _left(self._ends_s)))
        self._connection.sendall(line.encode() + b"\n")
        by_s = min(self._ends_s, time.monotonic() + within_s)
        while b"\n" not in self._received:
            if len(self._received) > _GREETING_MAX:
                raise ConnectionError("its answer to a command is no line")
            self._read(by_s)
        answer, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        return answer.decode(errors="replace").rstrip("\r")

    def report(self, pids: Iterable[int]) -> tuple[str, ...]:
        """Ask for the ranks that are missing. Raises RasError."""
        try:
            self.command(f"TIMEOUT {_LEG_S}", _left(self._ends_s))
            is_json = self.command("SET FORMAT json", _left(self._ends_s)) == "OK"
            self._connection.settimeout(_left(self._ends_s))
            self._connection.sendall(b"VERBOSE STATUS\n")
            while self._read(self._ends_s):
                if len(self._received) > ANSWER_MAX:
                    raise RasError(f"its answer has more than {ANSWER_MAX:,} bytes")
        except TimeoutError as error:
            raise RasError("its answer does not end in time") from error
        except OSError as error:
            raise RasError(f"it broke off: {error.strerror or error}") from error
        text = self._received.decode(errors="replace")
        return read_json(text, pids) if is_json else read_text(text)

    def _read(self, by_s: float) -> bool:
        """Read what has come; return whether more may. Raises OSError."""
        self._connection.settimeout(_left(by_s))
        data = self._connection.recv(_READ_BYTES)
        if not data and not self._received:
            raise ConnectionError("it hung up")
        self._received += data
        return bool(data)

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _greeted(address: str, ends_s: float) -> _Stream:
    """Return a connection to a process that answers. Raises _NotGreetedError."""
    host, _, port = address.rpartition(":")
    try:
        wait_s = min(_GREETING_S, _left(ends_s))
        connection = socket.create_connection((host.strip("[]") or "localhost", int(port)), wait_s)
    except (OSError, ValueError, OverflowError) as error:
        raise _NotGreetedError(getattr(error, "strerror", "") or str(error)) from error
    stream = _Stream(connection, ends_s)
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        try:
            greeting = stream.command("CLIENT PROTOCOL 2", _GREETING_S)
        except OSError as error:
            raise _NotGreetedError("who listens does not greet; it may hang") from error
        if not greeting.upper().startswith("SERVER PROTOCOL "):
            raise _NotGreetedError("who listens is no NCCL RAS")
        stack.pop_all()
    return stream


def _left(ends_s: float) -> float:
    """Return the time that is left. Raises TimeoutError where there is none."""
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the time is over")
    return left_s
