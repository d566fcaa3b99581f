"""Assembly of enrolment: who signs, the port at which nodes enrol, the own certificate.

All of it only where it is configured: what reads and signs certificates takes 0.3 s to import.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from socket import gethostname
from typing import TYPE_CHECKING

from everstep_common.config import ConfigError
from everstep_controller.api.admin.enrolment import TokenIssuer
from everstep_controller.api.server import ListenError
from everstep_controller.assembly.foundation import Foundation, NamedTask
from everstep_controller.config.controller_config import ControllerConfig

if TYPE_CHECKING:
    from everstep_controller.drivers.kubernetes.api_server import ApiServer
    from everstep_controller.drivers.kubernetes.authority_map import AuthorityMap
    from everstep_controller.enrolment.kubernetes_pods import KubernetesPods
    from everstep_controller.enrolment.listener import EnrolmentListener
    from everstep_controller.enrolment.own_certificate import OwnCertificate
    from everstep_controller.enrolment.signer import Authority, Signer


# A node waits 60 s for an answer, and the signer may take 30 of them.
_API_SERVER_S = 10.0


@dataclass(slots=True)
class Enrolment:
    """What enrols nodes; nothing where that is not configured."""

    issuer: TokenIssuer | None = None
    listener: "EnrolmentListener | None" = None
    own: "OwnCertificate | None" = None
    authority_map: "AuthorityMap | None" = None
    api_server: "ApiServer | None" = None
    port: int = 0
    # Where the agents' streams are, once that is known.
    agents: list[int] = field(default_factory=list)

    def tasks(self) -> Iterator[NamedTask]:
        """Yield what runs as long as the controller does."""
        if self.listener is not None:
            yield "enrolment", self.listener.run
        if self.own is not None:
            yield "own certificate", self.own.run
        if self.authority_map is not None:
            yield "authority map", self.authority_map.run

    async def stop(self) -> None:
        """Listen no more, and ask nobody."""
        if self.listener is not None:
            self.listener.close()
        if self.api_server is not None:
            await self.api_server.close()


def assemble_enrolment(config: ControllerConfig, base: Foundation) -> Enrolment:
    """Return it; it listens and serves nobody yet. Raises ConfigError and ListenError."""
    settings, authorities = config.enrolment, config.tls.ca
    if not settings.listen or authorities is None:
        return Enrolment()
    from everstep_controller.enrolment.listener import EnrolmentListener
    from everstep_controller.enrolment.service import EnrolmentService, Terms

    authority = _authority(config)
    made = Enrolment(own=own_certificate(config))
    if made.own is not None:
        made.own.renew_if_due()
    terms = Terms(
        certificate_s=settings.certificate_s,
        grace_s=settings.grace_s,
        port=lambda: next(iter(made.agents), 0),
    )
    api_server = made.api_server = _api_server(config)
    service = EnrolmentService(
        base.runtime,
        _signer(config, authority),
        authorities,
        terms,
        pods=_pods(config, api_server),
    )
    made.authority_map = _authority_map(config, api_server)
    hosts = _NodeAddresses(base)
    try:
        made.listener = EnrolmentListener(config.tls, service, hosts.knows)
        made.port = made.listener.open(settings.listen)
    except OSError as error:
        raise ListenError(
            f"enrolment.listen: {settings.listen} cannot be listened on: "
            f"{error.strerror or error}; 'ss -ltnp' shows who uses the port"
        ) from error
    address = settings.address or f"{gethostname()}:{made.port}"
    made.issuer = TokenIssuer(_der(config, authority), address)
    return made


def own_certificate(config: ControllerConfig) -> "OwnCertificate | None":
    """Return what renews the controller's own certificate; None where it signs none."""
    authority = _authority(config) if config.enrolment.listen else None
    if authority is None:
        return None
    from everstep_controller.enrolment.own_certificate import OwnCertificate

    return OwnCertificate(config.tls, authority, config.enrolment.certificate_s)


def _api_server(config: ControllerConfig) -> "ApiServer | None":
    """Return connections to the API server that knows the pods; None where none is asked."""
    driver = config.drivers.kubernetes
    if not driver.access or not (
        config.enrolment.kubernetes_accounts or config.enrolment.kubernetes_authority
    ):
        return None
    from everstep_controller.drivers.kubernetes.access import Access
    from everstep_controller.drivers.kubernetes.api_server import ApiServer

    return ApiServer(Access(driver.access, driver.context), _API_SERVER_S)


def _pods(config: ControllerConfig, server: "ApiServer | None") -> "KubernetesPods | None":
    if server is None or not config.enrolment.kubernetes_accounts:
        return None
    from everstep_controller.enrolment.kubernetes_pods import KubernetesPods

    return KubernetesPods(server, config.enrolment.kubernetes_accounts)


def _authority_map(config: ControllerConfig, server: "ApiServer | None") -> "AuthorityMap | None":
    if server is None or not config.enrolment.kubernetes_authority or config.tls.ca is None:
        return None
    from everstep_controller.drivers.kubernetes.authority_map import AuthorityMap

    return AuthorityMap(server, config.enrolment.kubernetes_authority, config.tls.ca)


class _NodeAddresses:
    """Addresses of the nodes that are known, as their streams come from."""

    def __init__(self, base: Foundation) -> None:
        self._base = base
        self._known: frozenset[str] = frozenset()
        self._seq = -1

    def knows(self, address: str) -> bool:
        """Return whether a node's stream has come from an address."""
        if self._seq != self._base.runtime.seq:
            self._seq = self._base.runtime.seq
            nodes = self._base.state().nodes.values()
            self._known = frozenset(node.identity.address for node in nodes)
        return address in self._known


def _authority(config: ControllerConfig) -> "Authority | None":
    from everstep_controller.enrolment.signer import Authority, SigningError

    if config.enrolment.ca_key is None or config.tls.ca is None:
        return None
    try:
        return Authority.load(config.tls.ca, config.enrolment.ca_key)
    except SigningError as error:
        raise ConfigError([f"enrolment.ca_key: {error}"]) from error


def _signer(config: ControllerConfig, authority: "Authority | None") -> "Signer":
    from everstep_controller.enrolment.signer import CommandSigner, FileSigner

    if authority is not None:
        return FileSigner(authority)
    if config.tls.ca is None:
        raise ConfigError(["enrolment.listen: needs the certificates of [tls]"])
    return CommandSigner(config.enrolment.sign_command, config.tls.ca)


def _der(config: ControllerConfig, authority: "Authority | None") -> bytes:
    """Return the authority that nodes pin."""
    from cryptography.hazmat.primitives.serialization import Encoding

    from everstep_controller.enrolment.signer import SigningError, first_authority

    if authority is not None:
        return authority.certificate.public_bytes(Encoding.DER)
    if config.tls.ca is None:
        raise ConfigError(["enrolment.listen: needs the certificates of [tls]"])
    try:
        return first_authority(config.tls.ca).public_bytes(Encoding.DER)
    except SigningError as error:
        raise ConfigError([f"tls.ca: {error}"]) from error
