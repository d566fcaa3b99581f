"""Attacks on the Unix sockets of an agent, which every user of its node reaches."""

import json
import random
import socket
import struct
from contextlib import ExitStack

from everstep_common.frames import FRAME_BYTES_MAX, Channel, encode, header
from everstep_common.launcher_messages import FROM_LAUNCHER, TO_LAUNCHER, Join, Joined
from everstep_common.rank_messages import FROM_TRAINER, AskSkipped, Attach, Begin
from everstep_common.reports import GenerationFinished
from everstep_common.version import TRAINER_PROTOCOL, VERSION
from fakes.lingering import LingeringSockets
from real.attacks_target import Attack, Outcome, Rounds, Target

_SOCKETS = ("agent.sock", "health.sock", "nvhcd.sock")
_HELD = 3000
_ANSWER_S = 5.0
_SEED = 12


def _connect(target: Target, name: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(_ANSWER_S)
        made.connect(f"{target.run}/{name}")
    except OSError:
        made.close()
        raise
    return made


def silent_connections(target: Target, outcome: Outcome) -> Rounds:
    """Hold as many connections as there are descriptors, say nothing, and open new ones."""
    with ExitStack() as held:
        for number in range(_HELD):
            with outcome.may_be_refused():
                held.enter_context(_connect(target, _SOCKETS[number % len(_SOCKETS)]))
            yield
        while True:
            with outcome.may_be_refused():
                _connect(target, "agent.sock").close()
            yield


def connections_that_end(target: Target, outcome: Outcome) -> Rounds:
    """Connect and leave, as fast as can be."""
    while True:
        for name in _SOCKETS:
            with outcome.may_be_refused():
                _connect(target, name).close()
        yield


def half_frames(target: Target, outcome: Outcome) -> Rounds:
    """Announce frames of 64 MiB, send most of some, and never end them."""
    piece = b" " * (1 << 20)
    with ExitStack() as held:
        while True:
            with outcome.may_be_refused():
                connection = held.enter_context(_connect(target, "agent.sock"))
                connection.sendall(header(FRAME_BYTES_MAX))
                for _ in range(FRAME_BYTES_MAX // len(piece) - 1):
                    connection.sendall(piece)
                    yield
            yield


def garbage(target: Target, outcome: Outcome) -> Rounds:
    """Send bytes that are no frame, no question and no HTTP/2."""
    chance = random.Random(_SEED)
    while True:
        for name in _SOCKETS:
            with outcome.may_be_refused(), _connect(target, name) as connection:
                size = chance.choice([1, 4, 100, 5000, 1 << 16])
                connection.sendall(chance.choice([b"", header(size)]) + chance.randbytes(size))
        yield


def questions_that_nobody_reads(target: Target, outcome: Outcome) -> Rounds:
    """Ask on and on, and never take an answer."""
    asked = {
        "agent.sock": encode(_join(target, "unread", processes=1)) + encode(AskSkipped()) * 100,
        "health.sock": json.dumps({"groups": [], "patience_s": 60.0}).encode() + b"\n",
        "nvhcd.sock": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">I", 0) * 100,
    }
    with ExitStack() as held:
        while True:
            for name, question in asked.items():
                with outcome.may_be_refused():
                    held.enter_context(_connect(target, name)).sendall(question * 10)
            yield


def passed_descriptors(target: Target, outcome: Outcome) -> Rounds:
    """Pass sockets whose close takes an hour, before, within and behind what is expected."""
    attach = encode(_attach(target))
    with LingeringSockets() as lingering:
        while True:
            for name in _SOCKETS:
                for before in (b"", header(1000), attach):
                    with outcome.may_be_refused(), _connect(target, name) as connection:
                        connection.sendall(before)
                        lingering.pass_over(connection, attach)
            yield


def questions_of_health(target: Target, outcome: Outcome) -> Rounds:
    """Ask how the node is, all the time, and have it look again."""
    question = json.dumps({"groups": ["gpu", "no such"], "patience_s": 1e300}).encode() + b"\n"
    while True:
        with outcome.may_be_refused(), _connect(target, "health.sock") as connection:
            connection.sendall(question)
            connection.recv(1 << 16)
        yield


def joins_of_new_jobs(target: Target, outcome: Outcome) -> Rounds:
    """Begin a job of a new name with each connection, and keep or leave it."""
    with ExitStack() as held:
        number = 0
        while True:
            number += 1
            with outcome.may_be_refused():
                connection = held.enter_context(_connect(target, "agent.sock"))
                connection.sendall(encode(_join(target, f"flood-{number}", processes=1)))
                if number % 2:
                    connection.close()
            yield


def joins_that_cannot_be(target: Target, outcome: Outcome) -> Rounds:
    """Join with every value that a controller may stumble over."""
    most = 2**63 - 1
    changes: list[dict[str, object]] = [
        {"processes_per_node": 0},
        {"processes_per_node": most},
        {"nodes_min": 0},
        {"nodes_min": 3, "nodes_max": 2},
        {"nodes_min": -1},
        {"replica_nodes": 3},
        {"job": "../../etc/passwd"},
        {"job": "a\x1b]0;owned\x07"},
        {"job": "\ud800"},
        {"job": target.job, "token": "guessed"},
        {"environment": {"a=b": "c", "LD_PRELOAD": "/tmp/evil.so", "": ""}},
        {"storage": {"path": "/proc/self/mem"}},
        {"storage": {"path": "/etc"}},
        {"storage": {"path": "s3://nowhere/\0"}},
        {"snapshot_bytes": most},
        {"free_port": 0},
        {"running_generation": most},
        {"version": "\n" * 1000},
    ]
    while True:
        for number, change in enumerate(changes):
            with outcome.may_be_refused(), _connect(target, "agent.sock") as connection:
                fields = _fields(_join(target, f"odd-{number}", processes=1)) | change
                connection.sendall(_frame("Join", fields))
                connection.settimeout(0.1)
                _note_if_let_in(connection, change, target, outcome)
            yield


def reports_out_of_turn(target: Target, outcome: Outcome) -> Rounds:
    """Send every message of launchers and ranks with no, empty and absurd fields."""
    chance = random.Random(_SEED)
    odd: list[object] = [0, -1, 2**31, 2**63, 1e308, "", "x" * 100_000, [], {}, None, [[]] * 1000]
    while True:
        for kind in (*FROM_LAUNCHER, *FROM_TRAINER):
            with outcome.may_be_refused(), _connect(target, "agent.sock") as connection:
                connection.sendall(encode(_join(target, f"odd-{chance.random()}", processes=1)))
                names = getattr(kind, "__dataclass_fields__", {})
                fields = {name: chance.choice(odd) for name in names}
                connection.sendall(_frame(kind.__name__, fields))
            yield


def ranks_of_somebody_else(target: Target, outcome: Outcome) -> Rounds:
    """Attach to the job as one of its ranks, with guessed tokens, and ask for its memory."""
    while True:
        for generation in range(4):
            with outcome.may_be_refused(), _connect(target, "agent.sock") as connection:
                connection.sendall(encode(_attach(target, generation)) + encode(Begin(1)))
                if b'"Refused"' not in (answer := connection.recv(1 << 16)) and answer:
                    outcome.note(f"attached: {answer[:200]!r}")
        yield


def a_job_that_takes_all_memory(target: Target, outcome: Outcome) -> Rounds:
    """Promise, and then hold, as much memory of snapshots as there is."""
    with ExitStack() as held:
        for number in range(64):
            with outcome.may_be_refused():
                path = f"{target.run}/agent.sock"
                channel = Channel.connect(path, TO_LAUNCHER, _ANSWER_S)
                held.callback(channel.close)
                wanted = _join(target, f"large-{number}", processes=64, snapshot_bytes=1 << 40)
                channel.send(wanted)
                answer, _ = channel.receive(_ANSWER_S)
                if isinstance(answer, Joined):
                    channel.send(GenerationFinished(1, 0))
            yield


def _note_if_let_in(
    connection: socket.socket, change: dict[str, object], target: Target, outcome: Outcome
) -> None:
    try:
        answer = connection.recv(1 << 16)
    except TimeoutError:
        return
    if change.get("job") == target.job and b'"Joined"' in answer:
        outcome.note(f"joined {target.job}")


def _frame(kind: str, fields: dict[str, object]) -> bytes:
    body = json.dumps({"type": kind, **fields}).encode()
    return header(len(body)) + body


def _fields(join: Join) -> dict[str, object]:
    fields = json.loads(encode(join)[4:])
    assert isinstance(fields, dict)
    del fields["type"]
    return fields


def _join(target: Target, job: str, processes: int, snapshot_bytes: int = 0) -> Join:
    return Join(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job=job,
        token=f"of {target.uid}",
        nodes_min=1,
        nodes_max=1,
        processes_per_node=processes,
        reform=True,
        restarts_max=3,
        free_port=29500,
        snapshot_bytes=snapshot_bytes,
    )


def _attach(target: Target, generation: int = 1) -> Attach:
    return Attach(
        protocol=TRAINER_PROTOCOL,
        version=VERSION,
        job=target.job,
        token="guessed",
        generation=generation,
        rank=0,
    )


ATTACKS_ON_SOCKETS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        silent_connections,
        connections_that_end,
        half_frames,
        garbage,
        questions_that_nobody_reads,
        passed_descriptors,
        questions_of_health,
        joins_of_new_jobs,
        joins_that_cannot_be,
        reports_out_of_turn,
        ranks_of_somebody_else,
        a_job_that_takes_all_memory,
    )
}
