"""Enrolment settings: where nodes enrol, who signs their certificates, and how long these last."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from everstep_common.addresses import split_address
from everstep_common.setting import positive, setting
from everstep_controller.drivers.kubernetes.rights import PodEnrolment

_DAY_S = 86_400.0
# As Kubernetes has them: a label, and a subdomain.
_NAMESPACED = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentSettings:
    """Keys of the table [enrolment]; `everstep-controller init` writes what is needed of it."""

    listen: str = setting(
        "",
        unit="host:port",
        help="Where nodes enrol and renew their certificates, over TLS with the certificate of "
        "[tls] and without one of theirs, such as 0.0.0.0:7438. Empty: certificates are files "
        "that you bring, and nobody enrols.",
    )
    address: str = setting(
        "",
        unit="host:port",
        shown="the host name of this machine, with the port of listen",
        help="What nodes call that, for the line that 'everstep tokens make' prints.",
    )
    ca_key: Path | None = setting(
        None,
        help="Private key of the authority in tls.ca that signs, readable by the controller's user "
        "only. Not needed where sign_command signs.",
    )
    sign_command: tuple[str, ...] = setting(
        (),
        help="Program that signs instead, for a key in a KMS, in Vault or in cert-manager: it gets "
        "the request (CSR, PEM) on its standard input, and EVERSTEP_NODE, EVERSTEP_ROLE and "
        "EVERSTEP_DAYS in its environment, and prints the certificate with its chain. Its first "
        "authority must be the first in tls.ca.",
    )
    kubernetes_accounts: tuple[str, ...] = setting(
        (),
        help="Service accounts, each as NAMESPACE/NAME, whose pods enrol the node that they run "
        'on by a projected token for the audience "everstep", such as everstep/everstep-agent; '
        "drivers.kubernetes.access says which API server is asked. Whoever may make pods of "
        "these accounts in that namespace can be any node that a pod gets onto.",
    )
    kubernetes_authority: str = setting(
        "",
        unit="NAMESPACE/NAME",
        help="ConfigMap into which the controller writes the certificates of tls.ca as ca.pem, "
        "for the agents' pods to mount; empty: you give it to them.",
    )
    certificate_days: float = positive(
        30.0,
        unit="days",
        help="How long a certificate of an agent lasts; the agent renews it when a third of that "
        "is over.",
        most=3650,
    )
    grace_days: float = positive(
        30.0,
        unit="days",
        help="How long after its end a certificate may still be renewed, unless it is revoked: a "
        "controller, or a node, that was away over a holiday stops nothing.",
        most=3650,
    )

    @property
    def certificate_s(self) -> float:
        """Return how long a certificate lasts, in seconds."""
        return self.certificate_days * _DAY_S

    @property
    def grace_s(self) -> float:
        """Return how long after its end it may be renewed, in seconds."""
        return self.grace_days * _DAY_S

    @property
    def pods(self) -> PodEnrolment:
        """Return how pods enrol."""
        return PodEnrolment(self.kubernetes_accounts, self.kubernetes_authority)

    def problems(self, *, encrypted: bool) -> Iterator[str]:
        """Yield what is wrong with the values; ``encrypted``: whether there is a [tls]."""
        for key, value in (("listen", self.listen), ("address", self.address)):
            host, port = split_address(value)
            if value and not (host and port.isdigit() and int(port) < 65536):
                yield f"{key}: expected host:port, got {value!r}"
        yield from self._kubernetes_problems()
        if not self.listen:
            return
        if not encrypted:
            yield "listen: needs the certificates of [tls]; 'everstep-controller init' makes them"
        if self.ca_key is None and not self.sign_command:
            yield "ca_key: missing; name it or sign_command, or 'everstep-controller init' makes it"
        if self.ca_key is not None and self.sign_command:
            yield "sign_command: only one of ca_key and sign_command may be set"
        if problem := self._key_problem():
            yield problem

    def _kubernetes_problems(self) -> Iterator[str]:
        named = [("kubernetes_accounts", one) for one in self.kubernetes_accounts]
        if self.kubernetes_authority:
            named.append(("kubernetes_authority", self.kubernetes_authority))
        for key, name in named:
            if not _NAMESPACED.fullmatch(name):
                yield f"{key}: expected NAMESPACE/NAME, got {name!r}"
        if self.kubernetes_accounts and not self.listen:
            yield "kubernetes_accounts: needs enrolment.listen, such as 0.0.0.0:7438"

    def _key_problem(self) -> str:
        if self.ca_key is None:
            return ""
        try:
            mode = self.ca_key.stat().st_mode
            with self.ca_key.open("rb"):
                pass
        except OSError as error:
            return f"ca_key: {self.ca_key} cannot be read: {error.strerror}"
        if mode & 0o077:
            return f"ca_key: others may read {self.ca_key}; 'chmod 600 {self.ca_key}'"
        return ""
