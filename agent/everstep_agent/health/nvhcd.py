"""Health-check service: what NVIDIA's ft_launcher asks on its node to learn if it may train."""

# ruff: noqa: N802 - the names are those of nvhcd.proto

import asyncio
import json
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from everstep_agent.health.groups import GROUPS
from everstep_agent.health.rendering import as_json
from everstep_agent.health.report import HealthReport, Status
from everstep_agent.health.socket import HealthReporter
from everstep_agent.health.user_connections import serve_users
from everstep_agent.ipc.guarded_socket import GuardedSocket
from everstep_agent.ipc.listeners import listening_unix
from everstep_agent.ipc.private_address import address_of, bind_private
from everstep_agent.quotas.connection_quota import ConnectionQuota
from everstep_agent.quotas.token_bucket import Rate
from everstep_agent.quotas.user_quotas import UserRates
from everstep_proto.generated import nvhcd_pb2, nvhcd_pb2_grpc

Context = grpc.aio.ServicerContext[nvhcd_pb2.HealthCheckRequest, nvhcd_pb2.HealthCheckResponse]

# How many may ask at once: more than the jobs of a node.
_ASKING_MAX = 32
_REQUEST_BYTES_MAX = 64 << 10
_STOP_S = 0.2
_RELAYED_BYTES = 64 << 10
# Bytes with which a user may ask: a connection with one call takes 600, so that 64 ranks may ask at
# once, and seven of them a second for long.
_QUESTIONS = Rate(per_s=4 << 10, burst=64 << 10)
# What `serve_users` lets in is limited there, for each user.
_OPTIONS = (
    ("grpc.max_receive_message_length", _REQUEST_BYTES_MAX),
    ("grpc.max_connection_idle_ms", 10_000),
    ("grpc.server_handshake_timeout_ms", 5_000),
)

# The groups of signals that an argument of ft_launcher's check names; none means all of them.
_THEIR_GROUPS: dict[str, tuple[str, ...]] = {
    "prolog": (),
    "epilog": (),
    "logs": ("kernel",),
    "network": ("ib", "net"),
    "nic": ("ib", "net"),
    "storage": ("disk",),
    **{group: (group,) for group in GROUPS},
}


def asked_for(arguments: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the groups that the arguments ask for (none: all), and what was not understood."""
    groups: set[str] = set()
    ignored: list[str] = []
    everything = False
    for word in _named(arguments, ignored):
        found = _THEIR_GROUPS.get(word)
        if found is None:
            ignored.append(word)
        everything = everything or found == ()
        groups.update(found or ())
    chosen = () if everything else tuple(group for group in GROUPS if group in groups)
    return chosen, tuple(ignored)


def _named(arguments: Iterable[str], ignored: list[str]) -> Iterator[str]:
    """Yield the words that stand behind --group; every other one is ignored."""
    inside = False
    for word in arguments:
        option, _, value = word.partition("=")
        if word.startswith("-"):
            inside = option in ("--group", "--groups", "-g")
            if not inside:
                ignored.append(word)
            yield from value.split(",") if inside and value else ()
        elif inside:
            yield from word.split(",")
        else:
            ignored.append(word)


def answer(report: HealthReport, ignored: Sequence[str]) -> nvhcd_pb2.HealthCheckResponse:
    """Return the verdict. Only what is fatal fails: its client takes the node from the job."""
    failed = [
        f"{held.finding.condition} on {held.finding.component}: {held.finding.message}"
        + (" [injected]" if held.finding.injected else "")
        for held in report.findings
        if report.status is Status.CRITICAL and held.finding.severity.value == "fatal"
    ]
    code = int(report.status) if failed else 0
    document = json.loads(as_json(report))
    told = {"fail_count": len(failed), "failed_checks": failed, "ignored_arguments": list(ignored)}
    return nvhcd_pb2.HealthCheckResponse(
        success=not failed, exit_code=code, output=json.dumps(told | document)
    )


class HealthCheckServicer(nvhcd_pb2_grpc.HealthCheckServiceServicer):
    """Servicer of the health check: asks the health service and answers."""

    def __init__(self, service: HealthReporter) -> None:
        self._service = service

    async def RunHealthCheck(
        self, request: nvhcd_pb2.HealthCheckRequest, context: Context
    ) -> nvhcd_pb2.HealthCheckResponse:
        """See nvhcd.proto."""
        groups, ignored = asked_for(request.args)
        return answer(self._service.report(groups), ignored)


class HealthCheckServer:
    """Serves on a Unix socket until cancelled; ``ready`` once it can be asked.

    gRPC reads its sockets itself, so it would take passed descriptors and stand still at their
    close: it listens at a private address, and what users send is relayed to it.
    """

    def __init__(self, path: Path, service: HealthReporter, quota: ConnectionQuota) -> None:
        self.ready = asyncio.Event()
        self._path = path
        self._quota = quota
        self._servicer = HealthCheckServicer(service)

    async def run(self) -> None:
        """Serve. Raises OSError when the socket cannot be made."""
        server = grpc.aio.server(
            maximum_concurrent_rpcs=_ASKING_MAX,
            options=_OPTIONS,
        )
        nvhcd_pb2_grpc.add_HealthCheckServiceServicer_to_server(self._servicer, server)
        own = _bind(server)
        try:
            await server.start()
            with listening_unix(self._path) as listener:
                self.ready.set()
                relay = _Relay(address_of(own), UserRates(_QUESTIONS))
                await serve_users(listener, "health check", self._quota, relay.run)
        except OSError as error:
            raise OSError(f"health_check_socket: {self._path}: {error}") from error
        finally:
            await server.stop(_STOP_S)
            os.close(own)


def _bind(server: grpc.aio.Server) -> int:
    """Have gRPC listen where only this process reaches it. Raises OSError."""

    def bind(path: str) -> None:
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(str(error)) from error

    return bind_private(bind)


@dataclass(frozen=True, slots=True)
class _Relay:
    """Relay between users' connections and gRPC's."""

    address: str
    # How many bytes each user may ask with in a second: one connection carries any number of calls.
    rates: UserRates

    async def run(self, asking: GuardedSocket) -> None:
        """Relay until one side ends. Raises OSError."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as grpc_side:
            grpc_side.setblocking(False)
            await loop.sock_connect(grpc_side, self.address)
            directions = [
                loop.create_task(self._questions(asking, grpc_side)),
                loop.create_task(_answers(grpc_side, asking)),
            ]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)

    async def _questions(self, asking: GuardedSocket, grpc_side: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await asking.receive():
            wait_s = self.rates.overdraw(asking.user, loop.time(), len(data))
            await loop.sock_sendall(grpc_side, data)
            if wait_s:
                await asyncio.sleep(wait_s)


async def _answers(grpc_side: socket.socket, asking: GuardedSocket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(grpc_side, _RELAYED_BYTES):
        await loop.sock_sendall(asking.socket, data)
