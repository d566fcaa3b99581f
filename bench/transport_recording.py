"""Recording of what real agents say on their streams while a job trains, and what they are told.

A controller, two agents and a job of 8 ranks on each; between agents and controller is a proxy that
passes every byte on and reads along. Prints messages by kind, for each node and step.
"""

import argparse
import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.message import DecodeError
from processes import free_port
from recovery_fleet import JOB, Fleet, Shape, plain_environment
from recovery_runs import owned
from table import row, show
from transport_http2 import DATA, frames_of, messages_of
from vault_nodes import RANK_PATH

from everstep_proto.generated import fleet_pb2

_HERE = Path(__file__).parent
_STEP_S = 5.0
_NODES = 2
_PREFACE_SIZE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


@dataclass
class _Direction:
    """One way of a connection, read along."""

    message: type[fleet_pb2.AgentMessage] | type[fleet_pb2.ControllerMessage]
    skipped: int
    counts: Counter[str]
    sizes: Counter[str]
    _input: bytearray = field(default_factory=bytearray)
    _messages: bytearray = field(default_factory=bytearray)

    def read(self, data: bytes) -> None:
        skipped = min(self.skipped, len(data))
        self.skipped -= skipped
        self._input += data[skipped:]
        for kind, _, _, payload in frames_of(self._input):
            if kind == DATA:
                self._messages += payload
        for message in messages_of(self._messages):
            name = self._name(message)
            self.counts[name] += 1
            self.sizes[name] += len(message)

    def _name(self, message: bytes) -> str:
        try:
            told = self.message.FromString(message)
        except DecodeError:  # of the command line
            return "none"
        kind: str = told.WhichOneof("body") or "none"
        if kind in ("record", "order"):
            kind = f"{kind}: {getattr(told, kind).WhichOneof('body')}"
        if isinstance(told, fleet_pb2.AgentMessage) and kind == "vault":
            kind += f" of {len(told.vault.copies)} new, {len(told.vault.gone)} gone"
        return kind


@dataclass
class Proxy:
    """TCP proxy between agents and the controller."""

    port: int
    behind: int
    said: Counter[str] = field(default_factory=Counter)
    heard: Counter[str] = field(default_factory=Counter)
    said_bytes: Counter[str] = field(default_factory=Counter)
    heard_bytes: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        """Serve until the process ends."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        await server.serve_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self.behind)
        except OSError:
            writer.close()
            return
        said = _Direction(fleet_pb2.AgentMessage, _PREFACE_SIZE, self.said, self.said_bytes)
        heard = _Direction(fleet_pb2.ControllerMessage, 0, self.heard, self.heard_bytes)
        await asyncio.gather(
            _pass_on(reader, ours, said), _pass_on(theirs, writer, heard), return_exceptions=True
        )


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: _Direction
) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
            direction.read(data)
    finally:
        writer.close()


class _Recorded(Fleet):
    """A cluster whose agents reach the controller through a proxy, as does the command line."""

    behind = 0

    def start_controller(self) -> None:
        path = self.folder / "controller.toml"
        path.write_text(path.read_text().replace(f":{self.port}", f":{self.behind}"))
        Fleet.start_controller(self)

    def _launch(self, name: str) -> None:
        program = [sys.executable, str(_HERE / "transport_rank.py"), str(_STEP_S)]
        line = self.shape.launcher(self.folder / "token", self._socket(name), program)
        environ = plain_environment() | {"PYTHONPATH": RANK_PATH}
        words = [str(word) for word in line]
        self.launchers[name] = self.owned.start(f"{name}-launcher", words, environ)


def record(steps: int, processes: int) -> Iterator[tuple[str, float, float]]:
    """Yield each kind of message: how many for each node and step, and its bytes."""
    proxy = Proxy(free_port(), free_port())
    threading.Thread(target=proxy.run, daemon=True).start()
    with owned() as (home, folder):
        fleet = _Recorded(folder, home, Shape(_NODES, 0, processes, standby=False), proxy.port)
        fleet.behind = proxy.behind
        fleet.start()
        fleet.until("steps", 120.0, lambda: proxy.said["record: steps_completed"] > 2 * _NODES)
        counters = (proxy.said, proxy.heard, proxy.said_bytes, proxy.heard_bytes)
        before = [counter.copy() for counter in counters]
        time.sleep(steps * _STEP_S)
        after = [counter.copy() for counter in counters]
    said, heard, said_bytes, heard_bytes = (b - a for a, b in zip(before, after, strict=True))
    for way, counts, sizes in (("says", said, said_bytes), ("hears", heard, heard_bytes)):
        for kind, number in counts.most_common():
            yield f"{way} {kind}", number / steps / _NODES, sizes[kind] / number


def main() -> None:
    """Record and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--steps", type=int, default=12, help="of 5 s each")
    parser.add_argument("--processes", type=int, default=8, help="ranks of a node")
    given = parser.parse_args()
    found = list(record(given.steps, given.processes))
    rows = [row(f"{JOB}: a node {kind}, a step", [number], "") for kind, number, _ in found]
    rows += [row(f"{JOB}: {kind}", [size], "bytes") for kind, _, size in found]
    show(rows, given.json)


if __name__ == "__main__":
    main()
