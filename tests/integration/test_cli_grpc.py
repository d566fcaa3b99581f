# ruff: noqa: N802 - the methods have the names of the service
"""The command line over real gRPC: what each way to fail says, and that TLS is used when given."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
import trustme
from rich.console import Console

from everstep_cli.client.grpc_admin import connect
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command
from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from fakes.local_secret import SECRET_FILE
from fakes.ports import reserved_port

Context = grpc.ServicerContext


class _Controller(admin_pb2_grpc.AdminServicer):
    """Knows one node, lets nobody change anything, and is slow to say its version."""

    def ListNodes(
        self, request: admin_pb2.ListNodesRequest, context: Context
    ) -> admin_pb2.ListNodesReply:
        return admin_pb2.ListNodesReply(
            nodes=[admin_pb2.NodeSummary(node="gpu-0042", state="healthy", connected=True)]
        )

    def ListJobs(
        self, request: admin_pb2.ListJobsRequest, context: Context
    ) -> admin_pb2.ListJobsReply:
        return admin_pb2.ListJobsReply()

    def GetNode(self, request: admin_pb2.GetNodeRequest, context: Context) -> admin_pb2.NodeDetail:
        context.abort(grpc.StatusCode.NOT_FOUND, f"no node named {request.node!r}")

    def Isolate(self, request: admin_pb2.IsolateRequest, context: Context) -> admin_pb2.NodeDetail:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "viewers may not isolate nodes")

    def GetController(
        self, request: admin_pb2.GetControllerRequest, context: Context
    ) -> admin_pb2.ControllerDetail:
        while context.is_active():
            time.sleep(0.01)
        return admin_pb2.ControllerDetail()

    def WatchEvents(
        self, request: admin_pb2.WatchEventsRequest, context: Context
    ) -> Iterator[admin_pb2.Event]:
        yield admin_pb2.Event(id=1, subject="gpu-0042", reason="NodeHealthy", message="it is well")
        if request.follow:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the controller stops")


@contextmanager
def controller(credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    """Serve on a free port; yield its address."""
    server = grpc.server(ThreadPoolExecutor(4))
    admin_pb2_grpc.add_AdminServicer_to_server(_Controller(), server)  # type: ignore[abstract]  # not all calls
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def call(*arguments: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it drew."""
    screen = io.StringIO()
    session = AdminSession(connect, Console(file=screen, width=120), time.time_ns)
    arguments = (*arguments, "--secret-file", str(SECRET_FILE))
    return run_command(session, arguments), screen.getvalue()


def test_nodes_are_listed_over_grpc() -> None:
    with controller() as address:
        code, drawn = call("nodes", "--controller", address)
    assert code == 0
    assert "gpu-0042" in drawn


def test_an_unknown_node_names_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    with controller() as address:
        code, _ = call("node", "gpu-042", "--controller", address)
    assert code == 2
    error = capsys.readouterr().err
    assert "no node named 'gpu-042'; did you mean 'gpu-0042'?" in error
    assert "'everstep nodes'" in error


def test_who_may_not_is_told_how_to_ask_again(capsys: pytest.CaptureFixture[str]) -> None:
    with controller() as address:
        code, _ = call("isolate", "gpu-0042", "--reason", "x", "--controller", address)
    assert code == 1
    error = capsys.readouterr().err
    assert "viewers may not isolate nodes" in error
    assert "--tls-certificate" in error


def test_a_controller_that_is_not_there_is_told_with_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with reserved_port() as port:
        address = f"127.0.0.1:{port}"
        code, _ = call("nodes", "--controller", address)
    assert code == 1
    error = capsys.readouterr().err
    assert f"no controller answers at {address}" in error
    assert "'everstep-controller'" in error
    assert "--standalone' has its own" in error


def test_a_controller_that_hangs_is_given_up_at_the_deadline() -> None:
    with controller() as address:
        began = time.monotonic()
        code, drawn = call("version", "--controller", address, "--timeout", "0.2")
    assert code == 0  # the version of this command is known
    assert "did not answer within 0.2 s" in drawn
    # Less than the 10 s that it would wait without the option.
    assert time.monotonic() - began < 9


def test_a_controller_that_was_never_there_is_not_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with controller() as address:
        code, drawn = call("events", "--controller", address)
    assert code == 0
    assert "it is well" in drawn
    with reserved_port() as port:
        assert call("events", "--follow", "--controller", f"127.0.0.1:{port}")[0] == 1
    assert "no controller answers" in capsys.readouterr().err


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[trustme.CA, list[str]]:
    """Make an authority, and the options of an operator whom it knows."""
    authority = trustme.CA()
    operator = authority.issue_cert("operator", common_name="operator")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    operator.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    operator.private_key_pem.write_to_path(tmp_path / "key.pem")
    options = ["--tls-ca", "ca.pem", "--tls-certificate", "cert.pem", "--tls-key", "key.pem"]
    return authority, [str(tmp_path / o) if o.endswith(".pem") else o for o in options]


def _server_credentials(authority: trustme.CA) -> grpc.ServerCredentials:
    certificate = authority.issue_cert("127.0.0.1")
    return grpc.ssl_server_credentials(
        [(certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())],
        root_certificates=authority.cert_pem.bytes(),
        require_client_auth=True,
    )


def test_with_certificates_both_ends_prove_who_they_are(
    certificates: tuple[trustme.CA, list[str]],
) -> None:
    authority, options = certificates
    with controller(_server_credentials(authority)) as address:
        assert call("nodes", "--controller", address, *options)[0] == 0


def test_a_controller_of_another_authority_is_not_believed(
    certificates: tuple[trustme.CA, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, options = certificates
    with controller(_server_credentials(trustme.CA())) as address:
        code, _ = call("nodes", "--controller", address, *options)
    assert code == 1
    assert "do not trust each other" in capsys.readouterr().err


def test_a_controller_that_goes_away_in_a_handshake_is_not_said_to_distrust(
    certificates: tuple[trustme.CA, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, options = certificates
    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = threading.Thread(target=_close_each, args=(server,), daemon=True)
        closing.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        code, _ = call("nodes", "--controller", address, *options)
        server.shutdown(socket.SHUT_RDWR)
        closing.join()
    said = capsys.readouterr().err
    assert code == 1
    assert "closed the connection: it went away, or it does not trust" in said
    assert "do not trust each other" not in said


def _close_each(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            server.accept()[0].close()


def test_a_key_that_cannot_be_read_is_named(
    certificates: tuple[trustme.CA, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    _, options = certificates
    Path(options[-1]).unlink()
    assert call("nodes", *options)[0] == 1
    assert f"{options[-1]} cannot be read" in capsys.readouterr().err
