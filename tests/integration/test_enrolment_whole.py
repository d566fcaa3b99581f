"""Enrolment with real daemons: init, a token, a join, a renewal under way, and a revocation."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep_proto.enrolment.validity import validity
from fakes.ports import reserved_port
from fakes.waits import wait_until

pytestmark = pytest.mark.timeout(600)
_BIN = Path(sys.executable).parent


def _run(*words: object, **environ: str) -> "subprocess.CompletedProcess[str]":
    command = [str(_BIN / str(words[0])), *map(str, words[1:])]
    return subprocess.run(
        command,
        env={**os.environ, "COLUMNS": "", **environ},
        capture_output=True,
        text=True,
        timeout=200,
    )


@contextmanager
def _daemon(name: str, config: Path) -> Iterator[Path]:
    """Run a daemon; yield its log."""
    log = config.with_suffix(".log")
    with log.open("w") as file:
        child = subprocess.Popen([_BIN / name, "--config", config], stderr=file)
        try:
            yield log
        finally:
            child.terminate()
            child.wait(60)


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """Yield a port of loopback for agents, and one for enrolment."""
    with reserved_port() as agents, reserved_port() as enrolment:
        yield agents, enrolment


def test_a_bare_machine_becomes_a_cluster_of_one_node(
    tmp_path: Path, ports: tuple[int, int]
) -> None:
    port, enrolment_port = ports
    config, agent = tmp_path / "controller.toml", tmp_path / "agent.toml"
    config.write_text(
        f'listen = "127.0.0.1:{port}"\nmetrics = ""\njournal = "{tmp_path}/var/journal.sqlite"\n'
        f'log_style = "text"\n[enrolment]\nlisten = "127.0.0.1:{enrolment_port}"\n'
        # So short that a third of it was over before it was signed: it begins five minutes ago.
        "certificate_days = 0.005\n"
    )
    (tmp_path / "kernel.log").touch()
    agent.write_text(
        f'data_folder = "{tmp_path}/data"\nkernel_log = "{tmp_path}/kernel.log"\n'
        'metrics_address = "127.0.0.1:0"\nliveness_address = "127.0.0.1:0"\nlog_style = "text"\n'
        f'[jobs]\nruntime_folder = "{tmp_path}/run"\nbulk_port = 0\n'
    )
    made = _run(
        "everstep-controller",
        "init",
        "--name",
        "localhost",
        "--name",
        "127.0.0.1",
        "--config",
        config,
    )
    assert made.returncode == 0, made.stderr
    exported = dict(re.findall(r"(EVERSTEP_[A-Z_]+)=(\S+)", made.stdout))
    assert exported["EVERSTEP_CONTROLLER"] == f"localhost:{port}"
    with _daemon("everstep-controller", config) as controller_log:
        wait_until(lambda: "listening on port" in controller_log.read_text(), 120)
        token = _run("everstep", "tokens", "make", "--node", "gpu-1", **exported)
        assert token.returncode == 0, token.stderr
        words = next(line for line in token.stdout.splitlines() if "everstep-agent join" in line)
        joined = _run(*words.split(), "--node", "gpu-1", "--config", agent)
        assert joined.returncode == 0, joined.stderr
        assert "takes this certificate" in joined.stdout
        with _daemon("everstep-agent", agent) as agent_log:
            wait_until(
                lambda: "the certificate of this node was renewed" in agent_log.read_text(), 120
            )
            shown = _run("everstep", "nodes", **exported)
            assert "1 healthy" in shown.stdout, shown
            text = agent_log.read_text()
            assert text.count("connected to the controller") == 1
            own = validity((tmp_path / "data/tls/agent.pem").read_bytes())
            listed = _run("everstep", "nodes", "certificates", **exported)
            assert own.serial in listed.stdout
            gone = _run("everstep", "nodes", "revoke", "gpu-1", "--reason", "stolen", **exported)
            assert "1 stream ended" in gone.stdout, gone
            wait_until(lambda: "gpu-1 was revoked" in agent_log.read_text(), 60)
        events = _run("everstep", "events", "--subject", "gpu-1", **exported).stdout
        for reason in ("NodeEnrolled", "CertificateRenewed", "CertificatesRevoked"):
            assert reason in events
        assert (
            "TokenMade" in _run("everstep", "events", "--subject", "controller", **exported).stdout
        )
    again = _run("everstep-agent", "join", words.split()[2], words.split()[3], "--config", agent)
    assert again.returncode == 1
    assert "nobody listens at" in again.stderr
    secret = words.split()[2].split("-")[2]
    assert len(secret) >= 26
    assert secret not in controller_log.read_text()
