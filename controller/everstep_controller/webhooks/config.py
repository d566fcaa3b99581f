"""Configuration of a webhook: where its events go, which ones, and how fast."""

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from everstep_common.credential_file import CredentialError, CredentialFile
from everstep_common.judging.condition import name_problems
from everstep_common.judging.findings import Severity
from everstep_common.setting import Bounds, setting
from everstep_controller.webhooks.egress import EgressError, host_problem, target_of
from everstep_controller.webhooks.http_post import tls_context
from everstep_controller.webhooks.signature import SigningKeyError, signing_key

# It names a file and a label.
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class EventKind(Enum):
    """Kind of the events that a webhook gets."""

    DECISION = "decision"
    FINDING = "finding"
    INCIDENT = "incident"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """Keys of one table ``[webhooks.NAME]``."""

    url_file: CredentialFile = setting(
        help="File with the URL, which often has a secret in it: https://HOST/…. It is read for "
        "each event, so one that is replaced counts at once.",
    )
    key_file: CredentialFile = setting(
        help="File with the key of the signature: 24 characters or more, or 'whsec_' and base64 as "
        "the libraries of Standard Webhooks have it.",
    )
    hosts: tuple[str, ...] = setting(
        help="Hosts that the URL may have; nothing is sent to another one, nor to addresses of "
        "this machine or of a cloud's metadata that a name resolves to. 127.0.0.1, for a relay on "
        "this machine, is named as such.",
    )
    kinds: tuple[EventKind, ...] = setting(
        tuple(EventKind), help="What is sent: decisions, findings, incidents."
    )
    severity: Severity = setting(
        Severity.INFO, help="Findings of less than this are not sent: info, degraded or fatal."
    )
    conditions: tuple[str, ...] = setting(
        (), help='Findings of these conditions alone ("XidFatal"); none named: of all.'
    )
    subjects: tuple[str, ...] = setting(
        (),
        help='Events about these nodes and jobs alone ("gpu-*", "controller"); none named: all.',
    )
    max_per_second: int = setting(
        10,
        unit="events/s",
        help="Most requests a second. What happens beyond it comes in one digest, which lists the "
        "gravest and counts the others: people do not read more, and receivers refuse more.",
        bounds=Bounds(least=1, most=1000),
    )
    timeout_s: float = setting(
        5.0,
        unit="s",
        help="How long a request may take, from the name to the last byte of the answer. Receivers "
        "answer first and work then.",
        bounds=Bounds(above=0, most=60),
    )
    ca_file: Path = setting(
        factory=Path,
        shown="those of the system",
        help="Authorities by which the receiver's certificate is verified.",
    )

    @property
    def authorities(self) -> str:
        """Return the file with the authorities; empty for those of the system."""
        return str(self.ca_file) if self.ca_file != Path() else ""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the values, and with what is in the files now."""
        if not self.hosts:
            yield "hosts: expected the host of the URL, at least"
        yield from (f"hosts: {problem}" for problem in map(host_problem, self.hosts) if problem)
        yield from (f"conditions: {problem}" for problem in name_problems(self.conditions))
        if not self.kinds:
            yield "kinds: expected one of decision, finding, incident, at least"
        try:
            target_of(self.url_file.read(), self.hosts)
        except CredentialError:
            pass  # the loader of configurations has said so
        except EgressError as error:
            yield f"url_file: {error}"
        try:
            signing_key(self.key_file.read())
        except CredentialError:
            pass  # as above
        except SigningKeyError as error:
            yield f"key_file: {error}"
        try:
            tls_context(self.authorities)
        except (OSError, ssl.SSLError) as error:
            yield f"ca_file: {self.ca_file} cannot be used: {error.strerror or error}"


def name_problem(name: str) -> str:
    """Return what is wrong with the name of a webhook; empty for nothing."""
    if NAME.fullmatch(name):
        return ""
    return "expected a name of up to 32 small letters, digits and '-'"
