"""Attacks on the ports of an agent, and on its controller, from the same machine."""

import random
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import grpc

from everstep_common.frames import FRAME_BYTES_MAX, header
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from real.attacks_target import Attack, Outcome, Rounds, Target

_HOST = "127.0.0.1"
_ANSWER_S = 3.0
_HELD = 1500
_SEED = 12
# A TLS record that says it holds a ClientHello.
_CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


def _connect(target: Target, port: str) -> socket.socket:
    if port in target.ports:
        return socket.create_connection((_HOST, target.ports[port]), _ANSWER_S)
    kind, _, place = target.controller.partition(":")
    if kind != "unix":
        return socket.create_connection((kind, int(place)), _ANSWER_S)
    made = socket.socket(socket.AF_UNIX)
    try:
        made.settimeout(_ANSWER_S)
        made.connect(place)
    except OSError:
        made.close()
        raise
    return made


def _silent(port: str) -> Attack:
    def silent(target: Target, outcome: Outcome) -> Rounds:
        """Hold many connections, say nothing, and open new ones."""
        with ExitStack() as held:
            for _ in range(_HELD):
                with outcome.may_be_refused():
                    held.enter_context(_connect(target, port))
                yield
            while True:
                with outcome.may_be_refused():
                    _connect(target, port).close()
                yield

    return silent


def _garbage(port: str) -> Attack:
    def garbage(target: Target, outcome: Outcome) -> Rounds:
        """Send bytes that are no frame, no handshake and no request."""
        chance = random.Random(_SEED)
        while True:
            size = chance.choice([1, 11, 100, 5000, 1 << 16])
            begin = chance.choice([b"", header(size), header(FRAME_BYTES_MAX), _CLIENT_HELLO])
            with outcome.may_be_refused(), _connect(target, port) as connection:
                connection.sendall(begin + chance.randbytes(size))
            yield

    return garbage


def datagrams(target: Target, outcome: Outcome) -> Rounds:
    """Send datagrams: garbage, half ones, questions for other nodes, answers nobody asked for."""
    chance = random.Random(_SEED)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        while True:
            for kind in (b"", b"ESP1ask\0", b"ESP1answ", b"ESP2ask\0"):
                with outcome.may_be_refused():
                    size = chance.choice([0, 1, 16, 1400, 60_000])
                    datagram = kind + chance.randbytes(size)
                    sending.sendto(datagram, (_HOST, target.ports["liveness"]))
            yield


def orders_of_operators(target: Target, outcome: Outcome) -> Rounds:
    """Ask the controller for everything that an operator may."""
    requests: dict[str, object] = {
        "ListNodes": admin_pb2.ListNodesRequest(),
        "GetLedger": admin_pb2.GetLedgerRequest(job=target.job),
        "Isolate": admin_pb2.IsolateRequest(node=target.node),
        "RestartJob": admin_pb2.RestartJobRequest(job=target.job),
        "ForgetJob": admin_pb2.ForgetJobRequest(job=target.job),
        "Pause": admin_pb2.PauseRequest(),
        "Inject": admin_pb2.InjectRequest(node=target.node),
    }
    while True:
        for metadata in ((), (("authorization", "Bearer guessed"),)):
            with grpc.insecure_channel(target.controller) as channel:
                stub = admin_pb2_grpc.AdminStub(channel)
                for name, request in requests.items():
                    ask = partial(getattr(stub, name), request, _ANSWER_S, metadata)
                    _try(outcome, name, ask)
            yield


def a_false_agent(target: Target, outcome: Outcome) -> Rounds:
    """Say Hello as the node's own agent, and as another one."""
    while True:
        for node in (target.node, "another"):
            with grpc.insecure_channel(target.controller) as channel:
                stub = fleet_pb2_grpc.FleetStub(channel)
                _try(outcome, f"Hello of {node}", partial(_hello, stub, node))
            yield


def _hello(stub: fleet_pb2_grpc.FleetStub, node: str) -> object:
    stamp = fleet_pb2.Stamp(boot_id="boot", boot_ns=2**62, wall_ns=1)
    hello = fleet_pb2.Hello(
        node=node, agent_version="0.1.0", outbox="false", stamp=stamp, host=_HOST
    )
    said = iter([fleet_pb2.AgentMessage(hello=hello)])
    return next(iter(stub.Connect(said, timeout=_ANSWER_S)))


def _try(outcome: Outcome, what: str, call: Callable[[], object]) -> None:
    try:
        answer = call()
    except (grpc.RpcError, StopIteration):
        outcome.refused += 1
    else:
        outcome.note(f"{what}: {str(answer)[:200]}")


def slow_readers_of_metrics(target: Target, outcome: Outcome) -> Rounds:
    """Ask for /metrics byte by byte, and never read the answer."""
    while True:
        with ExitStack() as held:
            for _ in range(_HELD):
                with outcome.may_be_refused():
                    connection = held.enter_context(_connect(target, "metrics"))
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50 + b"GET /")
                yield


ATTACKS_ON_PORTS: dict[str, Attack] = {
    **{f"silent connections to {port}": _silent(port) for port in ("bulk", "controller")},
    **{f"garbage to {port}": _garbage(port) for port in ("bulk", "controller", "metrics")},
    **{
        attack.__name__: attack
        for attack in (datagrams, orders_of_operators, a_false_agent, slow_readers_of_metrics)
    },
}
