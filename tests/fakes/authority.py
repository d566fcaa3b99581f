"""A certificate authority for tests, which writes its certificates to files."""

from datetime import datetime
from pathlib import Path

import trustme

from everstep_proto.tls import TlsSettings


class Authority:
    """A test CA that writes its certificates to files."""

    def __init__(self, folder: Path, above: trustme.CA | None = None) -> None:
        self._ca = trustme.CA() if above is None else above.create_child_ca()
        self._folder = folder
        if above is None:
            self._ca.cert_pem.write_to_path(str(folder / "ca.pem"))

    def below(self) -> "Authority":
        """Return an authority that this one has signed; whoever trusts this one trusts it."""
        return Authority(self._folder, self._ca)

    def issue(
        self,
        name: str,
        role: str,
        file: str = "",
        ends: datetime | None = None,
        host: str = "localhost",
    ) -> TlsSettings:
        """Write a certificate for a host and return the settings that use it."""
        issued = self._ca.issue_cert(
            host, common_name=name, organization_unit_name=role, not_after=ends
        )
        stem = self._folder / (file or name)
        certificate, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return TlsSettings(ca=self._folder / "ca.pem", certificate=certificate, key=key)
