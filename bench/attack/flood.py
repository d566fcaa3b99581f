"""Attacker of the attack benchmark: one process of another user that floods an agent, or burns CPU.

Arguments: the kind, and what it needs to know as JSON. Runs until it is killed.
"""

import contextlib
import itertools
import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from everstep_common.frames import Channel, connect_in_turn, encode, header
from everstep_common.launcher_messages import TO_LAUNCHER, Join, Start
from everstep_common.rank_messages import TO_TRAINER, Attach, Attached, Progress
from everstep_common.version import TRAINER_PROTOCOL, VERSION

_PATIENCE_S = 10.0
_KEPT = 400
_CONNECTS_PER_S = 1000.0
# What a paced flood makes up for at most, of the time in which it had no processor.
_CATCH_UP_S = 0.1
_BURN_SLICE_S = 0.01
_GARBAGE = bytes(range(256)) * 32


@dataclass(frozen=True, slots=True)
class Target:
    """Agent that is flooded: its runtime folder and its ports; the share of a core to burn."""

    folder: str
    bulk_port: int
    liveness_port: int
    metrics_port: int
    share: float = 1.0

    def socket(self, name: str) -> str:
        """Return the path of one of its sockets."""
        return str(Path(self.folder) / name)


def burn(target: Target) -> Iterator[None]:
    """Use as much of a core as a flood did, without a word to anybody."""
    while True:
        ends = time.monotonic() + _BURN_SLICE_S * target.share
        while time.monotonic() < ends:
            pass
        time.sleep(_BURN_SLICE_S * (1 - target.share))
        yield


def _unix(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    connect_in_turn(made, path, _PATIENCE_S)
    made.settimeout(_PATIENCE_S)
    return made


def _tcp(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), _PATIENCE_S)


def _each(connect: Callable[[], socket.socket], words: bytes, *, answer: bool) -> Iterator[None]:
    """Connect, say something, hear the answer if one is due, leave; again and again."""
    while True:
        with contextlib.suppress(OSError), connect() as made:
            if words:
                made.sendall(words)
            while answer and made.recv(1 << 16):
                pass
        yield


def _keep(connect: Callable[[], socket.socket], words: bytes) -> Iterator[None]:
    """Keep connections that say a part of something; the oldest goes for a new one."""
    kept: deque[socket.socket] = deque()
    while True:
        with contextlib.suppress(OSError):
            kept.append(connect())
            kept[-1].sendall(words)
        if len(kept) > _KEPT:
            kept.popleft().close()
        yield


def _paced(flood: Iterator[None], per_s: float) -> Iterator[None]:
    """Do so much a second of a flood, and no more."""
    due = time.monotonic()
    for _ in flood:
        due = max(due + 1 / per_s, time.monotonic() - _CATCH_UP_S)
        time.sleep(max(0.0, due - time.monotonic()))
        yield


def _attach(name: str = "none", generation: int = 1) -> Attach:
    return Attach(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job=name,
        token="secret",
        generation=generation,
        rank=0,
    )


def _join(name: str) -> Join:
    return Join(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job=name,
        token="secret",
        nodes_min=1,
        nodes_max=1,
        processes_per_node=1,
        reform=True,
        restarts_max=3,
        free_port=29500,
    )


def joins(target: Target) -> Iterator[None]:
    """Join with jobs of ever new names, and leave."""
    path = target.socket("agent.sock")
    for number in itertools.count():
        with contextlib.suppress(OSError), _unix(path) as made:
            made.sendall(encode(_join(f"flood-{os.getpid()}-{number}")))
            made.recv(1 << 16)
        yield


def frames(target: Target) -> Iterator[None]:
    """Run a job of one rank, which tells its progress as fast as it is read."""
    path, name = target.socket("agent.sock"), f"frames-{os.getpid()}"
    launcher = Channel.connect(path, TO_LAUNCHER, _PATIENCE_S)
    launcher.send(_join(name))
    while not isinstance(started := launcher.receive(_PATIENCE_S)[0], Start):
        pass
    rank = Channel.connect(path, TO_TRAINER, _PATIENCE_S)
    rank.send(_attach(name, started.generation))
    answer = rank.receive(_PATIENCE_S)[0]
    assert isinstance(answer, Attached), answer
    words = b"".join(encode(Progress(step, 1, 1)) for step in range(500))
    with socket.socket(fileno=os.dup(rank.fileno())) as raw:
        raw.setblocking(True)
        while True:
            raw.sendall(words)
            yield


def udp(target: Target) -> Iterator[None]:
    """Send datagrams that are none of ours."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        while True:
            for _ in range(100):
                made.sendto(_GARBAGE[:24], ("127.0.0.1", target.liveness_port))
            yield


def descriptors(target: Target) -> Iterator[None]:
    """Pass descriptors where none are taken."""
    path = target.socket("agent.sock")
    with open(os.devnull, "rb") as passed:
        while True:
            with contextlib.suppress(OSError), _unix(path) as made:
                socket.send_fds(made, [b"\0"], [passed.fileno()])
            yield


def _health(target: Target) -> Iterator[None]:
    question = json.dumps({"groups": [], "patience_s": 1.0}).encode() + b"\n"
    return _each(lambda: _unix(target.socket("health.sock")), question, answer=True)


# Against one member of a job on two nodes.
TWO_NODES = "two-node flood"
KINDS: dict[str, Callable[[Target], Iterator[None]]] = {
    "burn": burn,
    "connects": lambda to: _each(lambda: _unix(to.socket("agent.sock")), b"", answer=False),
    "half frames": lambda to: _keep(
        lambda: _unix(to.socket("agent.sock")), header(1000) + b'{"type": '
    ),
    "garbage": lambda to: _each(lambda: _unix(to.socket("agent.sock")), _GARBAGE, answer=False),
    "questions": lambda to: _each(
        lambda: _unix(to.socket("agent.sock")), encode(_attach()), answer=True
    ),
    "progress": frames,
    "joins": joins,
    "health": _health,
    "ft_launcher checks": lambda to: _each(
        lambda: _unix(to.socket("nvhcd.sock")), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", answer=False
    ),
    "metrics": lambda to: _each(
        lambda: _tcp(to.metrics_port), b"GET /metrics HTTP/1.1\r\n\r\n", answer=True
    ),
    "bulk connects": lambda to: _keep(lambda: _tcp(to.bulk_port), b""),
    "bulk garbage": lambda to: _each(lambda: _tcp(to.bulk_port), _GARBAGE, answer=False),
    TWO_NODES: lambda to: _paced(_keep(lambda: _tcp(to.bulk_port), b""), _CONNECTS_PER_S),
    "datagrams": udp,
    "descriptors": descriptors,
}


def main() -> None:
    """Flood until killed."""
    kind, told = sys.argv[1:]
    flood = KINDS[kind](Target(**json.loads(told)))
    print("ready", flush=True)
    for _ in flood:
        pass


if __name__ == "__main__":
    main()
