"""Connection options of the command line: the address of the controller, and the TLS files."""

from dataclasses import dataclass, field

from everstep_proto.tls import TlsSettings, split_address

DEFAULT_CONTROLLER = "127.0.0.1:7433"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Address of a controller, and the TLS files that prove to it who asks."""

    address: str = DEFAULT_CONTROLLER
    tls: TlsSettings = field(default_factory=TlsSettings)
    timeout_s: float = 10.0

    def problem(self) -> str:
        """Say what is wrong with it, in the user's words; empty when nothing is."""
        host, port = split_address(self.address)
        if not host or not port.isdigit():
            return f"--controller: expected HOST:PORT, got {self.address!r}"
        given = [self.tls.ca, self.tls.certificate, self.tls.key]
        if any(given) and not self.tls.enabled:
            return "TLS needs all three of --tls-ca, --tls-certificate and --tls-key"
        if not 0 < self.timeout_s < float("inf"):
            return f"--timeout: expected seconds above 0, got {self.timeout_s:g}"
        return ""
