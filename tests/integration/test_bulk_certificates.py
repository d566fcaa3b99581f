"""An agent that is to use TLS between nodes, and cannot, does not start, and says what to do."""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.vault.transfer.certificates import TlsCertificates
from everstep_common.config import EX_CONFIG, ConfigError
from everstep_proto.tls import TlsSettings
from integration.tls_world import authority
from integration.vault_world import TIMEOUT_S, lived

_ROOT = Path(__file__).resolve().parents[2]


def _sentence(settings: TlsSettings, node: str = "node-1") -> str:
    with pytest.raises(ConfigError) as refused:
        TlsCertificates(settings, node)
    (problem,) = refused.value.problems
    assert problem.startswith("jobs.bulk_tls: ")
    assert "jobs.bulk_tls = false" in problem
    return problem


def test_a_good_certificate_is_taken(tmp_path: Path) -> None:
    TlsCertificates(authority(tmp_path / "ca").issue("node-1", "agent"), "node-1")


def test_the_certificate_of_another_node_is_not_taken(tmp_path: Path) -> None:
    issued = authority(tmp_path / "ca").issue("node-2", "agent")
    assert "of node-2, and not of node-1" in _sentence(issued)


def test_the_certificate_of_an_operator_is_not_taken(tmp_path: Path) -> None:
    issued = authority(tmp_path / "ca").issue("node-1", "operator")
    assert "its organizational unit must be agent" in _sentence(issued)


def test_a_key_of_another_certificate_is_not_taken(tmp_path: Path) -> None:
    signs = authority(tmp_path / "ca")
    issued, other = signs.issue("node-1", "agent"), signs.issue("node-1", "agent", "other")
    assert "mismatch" in _sentence(replace(issued, key=other.key)).lower()


def test_a_certificate_of_another_authority_is_not_taken(tmp_path: Path) -> None:
    ours, theirs = authority(tmp_path / "ours"), authority(tmp_path / "theirs")
    issued = replace(theirs.issue("node-1", "agent"), ca=tmp_path / "ours" / "ca.pem")
    assert ours is not theirs
    assert "issuer" in _sentence(issued)


def test_what_is_no_certificate_is_not_taken(tmp_path: Path) -> None:
    issued = authority(tmp_path / "ca").issue("node-1", "agent")
    assert issued.certificate is not None
    issued.certificate.write_text("hello\n")
    assert _sentence(issued)


@pytest.mark.parametrize("certificates", [False, True])
@lived
async def test_an_agent_without_a_good_certificate_does_not_start(
    tmp_path: Path, *, certificates: bool
) -> None:
    issued = authority(tmp_path / "ca").issue("node-7", "agent")
    table = (
        f'[tls]\nca = "{issued.ca}"\ncertificate = "{issued.certificate}"\nkey = "{issued.key}"\n'
    )
    config = tmp_path / "agent.toml"
    config.write_text(
        f'node = "node-1"\ndata_folder = "{tmp_path}/data"\n[jobs]\nbulk_tls = true\n'
        f'runtime_folder = "{tmp_path}/run"\n' + (table if certificates else "")
    )
    paths = (str(_ROOT / part) for part in ("agent", "common", "proto"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everstep_agent.main", "--config", str(config)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    assert process.returncode == EX_CONFIG
    (line,) = said.decode().splitlines()
    assert "jobs.bulk_tls" in line
    assert ("of node-7, and not of node-1" if certificates else "in the table [tls]") in line
