"""The secret of all controllers that the tests start on loopback, and channels that show it."""

import atexit
import shutil
import tempfile
from pathlib import Path

import grpc

from everstep_proto.local.client import LocalAccess
from everstep_proto.local.secret import make_secret, read_secret
from everstep_proto.tls import TlsSettings

_FOLDER = Path(tempfile.mkdtemp(prefix="essecret"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

SECRET_FILE = _FOLDER / "secret"
make_secret(SECRET_FILE)

# A line of a daemon's configuration.
SECRET_LINE = f'secret_file = "{SECRET_FILE}"\n'


def access_to(port: int, tls: TlsSettings | None = None) -> LocalAccess:
    """Return how an agent knows a controller of the tests."""
    return LocalAccess(
        address=f"127.0.0.1:{port}", tls=tls or TlsSettings(), secret_file=SECRET_FILE
    )


def shown() -> tuple[tuple[str, str], ...]:
    """Return what a call carries."""
    return read_secret(SECRET_FILE).metadata()


class _Unary(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation, client_call_details, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return await continuation(_with_secret(client_call_details), request)


class _Streamed(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation, client_call_details, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return await continuation(_with_secret(client_call_details), request)


def _with_secret(details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
    metadata = grpc.aio.Metadata(*shown())
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


def admin_channel(port: int) -> grpc.aio.Channel:
    """Return a channel for the admin calls of a test."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=[_Unary(), _Streamed()])
