# ruff: noqa: N802 - the methods have the names of the service
"""The command line with the addresses of several controllers, over real gRPC."""

import io
import operator
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from rich.console import Console

from everstep_cli.client.grpc_admin import connect
from everstep_cli.client.several_admin import is_question
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command
from everstep_proto.controllers import ACTIVE_ADDRESS_KEY
from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from fakes.controllers import start_controller
from fakes.local_secret import SECRET_FILE
from fakes.ports import reserved_port
from fakes.waits import crowding

Context = grpc.ServicerContext


@dataclass
class _Controller(admin_pb2_grpc.AdminServicer):
    """One of two: answers questions, and takes orders while it is the active one."""

    name: str
    # The address that it names as the active one's; None: it is the active one.
    active: str | None = None
    # It says in the answers to questions, too, that it is a standby.
    tells: bool = True
    calls: list[str] = field(default_factory=list)
    address: str = ""

    def ListNodes(
        self, request: admin_pb2.ListNodesRequest, context: Context
    ) -> admin_pb2.ListNodesReply:
        self._question("ListNodes", context)
        return admin_pb2.ListNodesReply(nodes=[admin_pb2.NodeSummary(node=self.name)])

    def GetController(
        self, request: admin_pb2.GetControllerRequest, context: Context
    ) -> admin_pb2.ControllerDetail:
        self._question("GetController", context)
        return admin_pb2.ControllerDetail(version=self.name)

    def Isolate(self, request: admin_pb2.IsolateRequest, context: Context) -> admin_pb2.NodeDetail:
        self.calls.append("Isolate")
        if self.active is not None:
            context.set_trailing_metadata(((ACTIVE_ADDRESS_KEY, self.active),))
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{self.name} is a standby")
        return admin_pb2.NodeDetail(summary=admin_pb2.NodeSummary(node=self.name))

    def WatchEvents(
        self, request: admin_pb2.WatchEventsRequest, context: Context
    ) -> Iterator[admin_pb2.Event]:
        self._question("WatchEvents", context)
        yield admin_pb2.Event(id=1, subject=self.name, reason="NodeHealthy", message="well")

    def _question(self, name: str, context: Context) -> None:
        self.calls.append(name)
        if self.active is not None and self.tells:
            context.set_trailing_metadata(((ACTIVE_ADDRESS_KEY, self.active),))


@contextmanager
def serving(*several: _Controller) -> Iterator[None]:
    """Serve each on a free port."""
    servers = [grpc.server(ThreadPoolExecutor(4)) for _ in several]
    for server, one in zip(servers, several, strict=True):
        admin_pb2_grpc.add_AdminServicer_to_server(one, server)
        one.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
    try:
        yield
    finally:
        for server in servers:
            server.stop(None).wait()


def call(addresses: str, *arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it drew."""
    screen = io.StringIO()
    session = AdminSession(connect, Console(file=screen, width=120), time.time_ns)
    given = (*arguments, "--controller", addresses, "--secret-file", str(SECRET_FILE))
    return run_command(session, given), screen.getvalue()


def _isolate(addresses: str) -> int:
    return call(addresses, "isolate", "gpu-1", "--reason", "x", "--json")[0]


def _controller(name: str, active: str | None = None, *, tells: bool = True) -> _Controller:
    return _Controller(name, active, tells)  # type: ignore[abstract]  # not all calls


def _pair(*, tells: bool = True) -> tuple[_Controller, _Controller]:
    return _controller("active"), _controller("standby", active="", tells=tells)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_questions_and_orders_go_to_the_active_one_wherever_it_stands(
    order: tuple[int, int],
) -> None:
    active, standby = both = _pair()
    with serving(*both):
        standby.active = active.address
        addresses = ",".join(both[place].address for place in order)
        code, drawn = call(addresses, "nodes")
        assert (code, "active" in drawn) == (0, True)
        assert call(addresses, "events")[0] == 0
        assert _isolate(addresses) == 0
    assert set(standby.calls) <= {"GetController"}
    assert {"ListNodes", "WatchEvents", "Isolate"} <= set(active.calls)


def test_an_order_that_a_standby_refuses_is_given_to_the_one_that_it_names() -> None:
    active, standby = both = _pair(tells=False)
    with serving(*both):
        standby.active = active.address
        assert _isolate(f"{standby.address},{active.address}") == 0
    assert (standby.calls.count("Isolate"), active.calls.count("Isolate")) == (1, 1)


def test_an_active_one_that_was_not_given_is_named_and_not_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    active, standby = both = _pair()
    other = _controller("other", active="")
    with serving(*both, other):
        standby.active = other.active = active.address
        for addresses in (standby.address, f"{standby.address},{other.address}"):
            assert _isolate(addresses) == 1
            told = capsys.readouterr().err
            named = f"name the active one with --controller {active.address}"
            assert f"standby is a standby; {named}" in told
        # Whoever knows of no active one still answers questions.
        assert call(f"{standby.address},{other.address}", "nodes")[0] == 0
        standby.active = ""
        assert _isolate(standby.address) == 1
        assert "which one is active it does not know" in capsys.readouterr().err
    assert active.calls == []


def test_a_dead_first_address_costs_nothing_and_a_stopped_one_two_seconds(tmp_path: Path) -> None:
    active = _controller("active")
    with serving(active), start_controller(tmp_path) as real, reserved_port() as port:
        began_s = time.monotonic()
        assert _isolate(f"127.0.0.1:{port},{active.address}") == 0
        dead_s = time.monotonic() - began_s
        os.kill(real.process.pid, signal.SIGSTOP)
        began_s = time.monotonic()
        assert _isolate(f"127.0.0.1:{real.port},{active.address}") == 0
        stopped_s = time.monotonic() - began_s
    assert dead_s < 2.0 * crowding()
    assert 2.0 <= stopped_s < 6.0 * crowding()
    assert active.calls.count("Isolate") == 2


def test_a_standby_answers_questions_where_the_active_one_is_gone() -> None:
    standby = _controller("standby")
    with serving(standby), reserved_port() as port:
        standby.active = f"127.0.0.1:{port}"
        code, drawn = call(f"127.0.0.1:{port},{standby.address}", "nodes")
    assert (code, "standby" in drawn) == (0, True)


def test_where_nobody_answers_each_is_named_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with reserved_port() as one, reserved_port() as two:
        assert call(f"127.0.0.1:{one},127.0.0.1:{two}", "nodes")[0] == 1
    told = capsys.readouterr().err
    for port in (one, two):
        assert f"127.0.0.1:{port}: nobody listens there (connection refused)" in told
    assert "systemctl status everstep-controller" in told


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("a:1,", "expected unix:/path or host:port, got ''"),
        ("a:1,a:1", "'a:1' is there twice"),
        ("a:1,unix:/run/c.sock", "addresses of one kind"),
    ],
)
def test_wrong_addresses_are_told(
    given: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(given, "nodes")[0] == 2
    told = " ".join(capsys.readouterr().err.split())
    assert problem in told


def test_every_call_is_a_question_or_an_order() -> None:
    service = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
    names = [method.name for method in service.methods]
    orders = {name for name in names if not is_question(operator.attrgetter(name))}
    assert orders == {
        *("AddMaintenance", "CancelMaintenance", "CancelRestart", "ClearInjections"),
        *("DeclareLost", "Drain", "ForgetJob", "HandOver", "Inject", "Isolate", "MakeToken"),
        "Pause",
        *("Release", "RemoveNode", "RestartJob", "Resume", "RevokeCertificates", "RevokeToken"),
        *("StopJob", "TestPair", "TestWebhook"),
    }
