"""Connection options of the command line: addresses of controllers, and the TLS files."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from everstep_proto.controllers import addresses_problem, split_addresses
from everstep_proto.local.address import default_address, default_secret_file
from everstep_proto.local.client import LocalAccess
from everstep_proto.tls import TlsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Address of a controller, and the files that prove to it who asks.

    Those of several have commas between them; see `each`.
    """

    address: str = field(default_factory=default_address)
    tls: TlsSettings = field(default_factory=TlsSettings)
    secret_file: Path = field(default_factory=default_secret_file)
    timeout_s: float = 10.0

    def each(self) -> "tuple[Connection, ...]":
        """Return the connection to each of the controllers."""
        return tuple(replace(self, address=address) for address in split_addresses(self.address))

    @property
    def access(self) -> LocalAccess:
        """Return how a controller of this machine is known, and what it is shown."""
        return LocalAccess(address=self.address, tls=self.tls, secret_file=self.secret_file)

    def problem(self) -> str:
        """Say what is wrong with it, in the user's words; empty when nothing is."""
        if problem := addresses_problem("--controller", split_addresses(self.address)):
            return problem
        given = [self.tls.ca, self.tls.certificate, self.tls.key]
        if any(given) and not self.tls.enabled:
            return "TLS needs all three of --tls-ca, --tls-certificate and --tls-key"
        if not 0 < self.timeout_s < float("inf"):
            return f"--timeout: expected seconds above 0, got {self.timeout_s:g}"
        return ""
