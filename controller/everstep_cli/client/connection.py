"""Connection options of the command line: the address of the controller, and the TLS files."""

from dataclasses import dataclass, field
from pathlib import Path

from everstep_proto.local.address import address_problem, default_address, default_secret_file
from everstep_proto.local.client import LocalAccess
from everstep_proto.tls import TlsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Address of a controller, and the files that prove to it who asks."""

    address: str = field(default_factory=default_address)
    tls: TlsSettings = field(default_factory=TlsSettings)
    secret_file: Path = field(default_factory=default_secret_file)
    timeout_s: float = 10.0

    @property
    def access(self) -> LocalAccess:
        """Return how a controller of this machine is known, and what it is shown."""
        return LocalAccess(address=self.address, tls=self.tls, secret_file=self.secret_file)

    def problem(self) -> str:
        """Say what is wrong with it, in the user's words; empty when nothing is."""
        if problem := address_problem("--controller", self.address):
            return problem
        given = [self.tls.ca, self.tls.certificate, self.tls.key]
        if any(given) and not self.tls.enabled:
            return "TLS needs all three of --tls-ca, --tls-certificate and --tls-key"
        if not 0 < self.timeout_s < float("inf"):
            return f"--timeout: expected seconds above 0, got {self.timeout_s:g}"
        return ""
