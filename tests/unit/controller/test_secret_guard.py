"""The guard of a controller on loopback: which calls it lets pass, and what it says of others."""

import asyncio
import logging
from pathlib import Path

import grpc
import pytest

from everstep_controller.api.secret_guard import SecretGuard
from everstep_controller.api.server import Endpoint, ListenError
from everstep_proto.local.client import PROBE
from everstep_proto.local.secret import METADATA_KEY, make_secret, read_secret
from everstep_proto.tls import TlsSettings


class Details(grpc.HandlerCallDetails):
    """What gRPC knows of a call before anything reads it."""

    def __init__(
        self,
        invocation_metadata: tuple[tuple[str, str], ...] = (),
        method: str = "/everstep.admin.v1.Admin/Pause",
    ) -> None:
        """See HandlerCallDetails."""
        self.invocation_metadata = invocation_metadata
        self.method = method


async def _passed(guard: SecretGuard, details: Details) -> bool:
    passed: list[grpc.HandlerCallDetails] = []

    async def continuation(call: grpc.HandlerCallDetails) -> None:
        passed.append(call)

    await guard.intercept_service(continuation, details)
    return bool(passed)


@pytest.fixture
def guard(tmp_path: Path) -> SecretGuard:
    return SecretGuard(tmp_path / "secret")


def _with(value: str) -> Details:
    return Details((("user-agent", "x"), (METADATA_KEY, value)))


def test_only_who_knows_the_secret_passes_and_others_are_counted(
    guard: SecretGuard, tmp_path: Path
) -> None:
    secret = read_secret(tmp_path / "secret").value
    assert asyncio.run(_passed(guard, _with(secret)))
    for details in (Details(), _with(""), _with("0" * 64), _with(secret[:-1]), _with(secret + "0")):
        assert not asyncio.run(_passed(guard, details))
    assert guard.refused == 5


def test_the_call_that_says_nothing_passes_uncounted(guard: SecretGuard) -> None:
    assert asyncio.run(_passed(guard, Details(method=PROBE)))
    assert guard.refused == 0


def test_a_flood_of_strangers_is_one_line_of_the_log(
    guard: SecretGuard, caplog: pytest.LogCaptureFixture
) -> None:
    async def flood() -> None:
        for _ in range(100):
            await _passed(guard, Details())

    with caplog.at_level(logging.WARNING):
        asyncio.run(flood())
    assert [record.message for record in caplog.records] == [
        "1 calls without the secret of this machine refused"
    ]


def test_a_replaced_secret_counts_from_the_next_call_on(guard: SecretGuard, tmp_path: Path) -> None:
    old = read_secret(tmp_path / "secret").value
    make_secret(tmp_path / "next")
    (tmp_path / "next").rename(tmp_path / "secret")
    assert not asyncio.run(_passed(guard, _with(old)))
    assert asyncio.run(_passed(guard, _with(read_secret(tmp_path / "secret").value)))


def test_a_socket_and_certificates_need_no_secret_and_a_port_makes_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    for listen, tls in (
        ("unix:/x/s", TlsSettings()),
        ("127.0.0.1:0", TlsSettings(ca=tmp_path, certificate=tmp_path, key=tmp_path)),
    ):
        assert Endpoint(listen=listen, tls=tls, secret_file=secret).guard() is None
    assert not secret.exists()
    port = Endpoint(listen="127.0.0.1:0", tls=TlsSettings(), secret_file=secret)
    assert port.guard() is not None
    secret.chmod(0o644)
    with pytest.raises(ListenError, match=r"secret_file: .* has the mode 0644"):
        port.guard()
