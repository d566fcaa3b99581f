"""Port at which certificates are signed as a controller does, without one.

A controller in the sandbox of an agent would be refused what an agent never asks for.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from everstep_controller.enrolment.listener import EnrolmentListener
from everstep_controller.enrolment.service import EnrolmentService
from everstep_controller.enrolment.signer import Authority, FileSigner, Wanted, new_authority
from everstep_proto.enrolment.certificate_requests import make_request, new_key
from everstep_proto.enrolment.messages import CertificateReply, PodEnrolRequest, RenewRequest
from everstep_proto.tls import Role, TlsSettings

NODE = "node-1"
_DAY_S = 86_400


class _Signs(EnrolmentService):
    """Signs for NODE whatever is asked."""

    def __init__(self, authority: Authority) -> None:
        self._signer = FileSigner(authority)
        self._trusted = _pem(authority)

    async def renew(self, request: RenewRequest, address: str) -> CertificateReply:
        """See EnrolmentService."""
        return await self._sign_for_node(request.request)

    async def enrol_pod(self, request: PodEnrolRequest, address: str) -> CertificateReply:
        """See EnrolmentService."""
        return await self._sign_for_node(request.request)

    async def _sign_for_node(self, request: str) -> CertificateReply:
        signed = await self._signer.sign(request, _wanted(NODE))
        return CertificateReply(
            certificate=signed.pem, authorities=self._trusted, cluster_id="test", port=7433
        )


@asynccontextmanager
async def enrolment_port(folder: Path) -> AsyncIterator[str]:
    """Yield its address; in the folder are ca.pem, and agent.pem of NODE."""
    now_s = int(time.time())
    authority, _ = new_authority("test", now_s - 300, now_s + _DAY_S)
    (folder / "ca.pem").write_text(_pem(authority))
    for name, file in (("localhost", "controller.pem"), (NODE, "agent.pem")):
        key = new_key()
        request = make_request(key, name).decode()
        signed = await FileSigner(authority).sign(request, _wanted(name))
        (folder / file).write_bytes(key + signed.pem.encode())
    own = folder / "controller.pem"
    tls = TlsSettings(ca=folder / "ca.pem", certificate=own, key=own)
    listener = EnrolmentListener(tls, _Signs(authority), lambda _: True)
    port = listener.open("127.0.0.1:0")
    serving = asyncio.create_task(listener.run())
    try:
        yield f"localhost:{port}"
    finally:
        serving.cancel()
        listener.close()


def _pem(authority: Authority) -> str:
    return authority.certificate.public_bytes(Encoding.PEM).decode()


def _wanted(name: str) -> Wanted:
    now_s = int(time.time())
    return Wanted(name=name, role=Role.AGENT, since_s=now_s - 300, ends_s=now_s + 30 * _DAY_S)
