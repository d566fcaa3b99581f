"""Pod enrolment: an agent in a pod gets its node's certificate by itself, before it serves.

Kubernetes vouches for the pod and its node, so nobody types a token. The certificate is asked for
in a process of its own, as a renewal is, until there is one: without it the agent can tell nobody
anything.
"""

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.enrolment.certificate_files import CertificateFiles
from everstep_common.config import ConfigError
from everstep_proto.enrolment.validity import NoCertificateError, validity
from everstep_proto.tls import TlsSettings

logger = logging.getLogger(__name__)

_FIRST_S, _LONGEST_S = 1.0, 30.0
_CHILD_S = 90.0

Ask = Callable[[AgentConfig], str]


def enrolled(
    config: AgentConfig,
    ask: Ask | None = None,
    sleep: Callable[[float], None] = time.sleep,
    wall_s: Callable[[], float] = time.time,
) -> AgentConfig:
    """Return the configuration with this node's certificate, when it has one.

    A configuration that enrols by no pod is returned as it is. Raises ConfigError.
    """
    if not config.enrolment.by_pod or config.tls.enabled:
        return config
    files = CertificateFiles.below(config.state_folder)
    if is_wanted(files, wall_s()):
        _enrol(config, ask or _ask, sleep)
    tls = TlsSettings(
        ca=files.authorities,
        certificate=files.own,
        key=files.own,
        server_name=config.tls.server_name,
    )
    made = replace(config, tls=tls)
    if problems := made.problems():
        raise ConfigError(problems)
    return made


def is_wanted(files: CertificateFiles, wall_s: float) -> bool:
    """Return whether there is no certificate, or one that has ended."""
    try:
        return validity(files.own.read_bytes()).ends_s <= wall_s
    except (OSError, NoCertificateError):
        return True


def _enrol(config: AgentConfig, ask: Ask, sleep: Callable[[float], None]) -> None:
    """Ask until there is a certificate; say why there is none when the reason changes."""
    random, wait_s, told = Random(), _FIRST_S, ""
    while said := ask(config):
        if said != told:
            logger.warning("this pod has no certificate yet, and asks again: %s", said)
        told = said
        sleep(wait_s * (0.5 + random.random()))
        wait_s = min(_LONGEST_S, wait_s * 2)
    logger.info("this node is enrolled: %s", config.node_name)


def _ask(config: AgentConfig) -> str:
    """Ask once, in a process of its own; return why there is no certificate, or ""."""
    settings = config.enrolment
    command = [
        *(sys.executable, "-m", "everstep_agent.enrolment.enrol_pod"),
        *(str(CertificateFiles.below(config.state_folder).folder), config.node_name),
        *(",".join(settings.addresses), config.tls.server_name),
        *(str(settings.authority), str(settings.kubernetes_token)),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CHILD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {_CHILD_S:.0f} s"
    if not done.returncode:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"the process ended with {done.returncode}"
