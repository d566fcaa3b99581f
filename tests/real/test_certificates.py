"""The script that makes certificates for a small fleet: what it makes is what the daemons take."""

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from everstep_proto.tls import TlsSettings, server_context

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL (apt: openssl)"),
]

_SCRIPT = Path(__file__).resolve().parents[2] / "systemd/certificates.sh"


def make(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the script."""
    return subprocess.run(
        ["sh", str(_SCRIPT), str(folder), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _subject(path: Path) -> tuple[str, str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = (x509.NameOID.ORGANIZATIONAL_UNIT_NAME, x509.NameOID.COMMON_NAME)
    unit, name = (certificate.subject.get_attributes_for_oid(oid)[0].value for oid in names)
    return str(unit), str(name)


def _alternatives(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in found.value]


def test_each_program_has_its_role_and_can_be_added_later(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    made = make(folder, "controller", "10.0.0.1", "agent", "gpu-1", "operator", "alice")
    assert made.returncode == 0, made.stderr
    authority = (folder / "ca.pem").read_bytes()
    assert make(folder, "agent", "gpu-2").returncode == 0
    assert (folder / "ca.pem").read_bytes() == authority
    assert _subject(folder / "controller.pem") == ("operator", "10.0.0.1")
    assert _subject(folder / "gpu-2.pem") == ("agent", "gpu-2")
    assert _subject(folder / "alice.pem") == ("operator", "alice")
    assert _alternatives(folder / "controller.pem") == ["10.0.0.1"]
    assert _alternatives(folder / "gpu-1.pem") == ["gpu-1"]
    keys = list(folder.glob("*.key"))
    assert len(keys) == 5
    assert [key.name for key in keys if key.stat().st_mode & 0o077] == []
    for name in ("controller", "gpu-1"):
        server_context(
            TlsSettings(
                ca=folder / "ca.pem",
                certificate=folder / f"{name}.pem",
                key=folder / f"{name}.key",
            )
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "certificates.sh FOLDER ROLE NAME"),
        (("agent",), "certificates.sh FOLDER ROLE NAME"),
        (("agnt", "gpu-1"), "agnt is no role"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    made = make(tmp_path / "tls", *words)
    assert made.returncode == 2
    assert said in made.stderr
