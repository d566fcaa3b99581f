"""Raw TCP pair: two processes that move bytes over loopback, to compare the vault with."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from harness.processes import module_command, running

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Moved:
    """One transfer: seconds, and CPU seconds of both sides."""

    seconds: float
    sender_cpu_s: float
    receiver_cpu_s: float


class RawPair:
    """Two processes; the bytes of the sender lie in a memfd, those of the receiver are mapped."""

    def __init__(
        self, sender: subprocess.Popen[str], receiver: subprocess.Popen[str], port: str
    ) -> None:
        self._sender = sender
        self._receiver = receiver
        self._port = port

    def move(self) -> Moved:
        """Move all bytes once."""
        _write(self._receiver, "go")
        _write(self._sender, self._port)
        seconds, sender_cpu_s = json.loads(_line(self._sender))
        _, receiver_cpu_s = json.loads(_line(self._receiver))
        return Moved(seconds, sender_cpu_s, receiver_cpu_s)


@contextlib.contextmanager
def raw_pair(
    size_bytes: int, streams: int = 1, *, new: bool = False, used: bool = False
) -> Iterator[RawPair]:
    """Start both; ``new``: the receiver takes new memory for each transfer.

    ``used``: it also hashes the bytes as they come, and copies them when all are there.
    """
    sizes = (str(size_bytes), str(streams), "new" if new else "kept", "used" if used else "left")
    with (
        running(module_command("vault.raw_tcp", "receive", *sizes)) as receiver,
        running(module_command("vault.raw_tcp", "send", *sizes)) as sender,
    ):
        port = _line(receiver)
        _line(sender)
        yield RawPair(sender, receiver, port)


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    print(line, file=process.stdin, flush=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args!r} ended early")
    return line.strip()
