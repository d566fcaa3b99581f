"""Controller configuration: the keys that an operator sets, with the reason for every default."""

import importlib.util
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from everstep_common.addresses import split_address
from everstep_common.config import setting
from everstep_common.credential_file import CredentialFile
from everstep_common.extras import install_line
from everstep_common.setting import not_negative, positive
from everstep_controller.config.group_config import group_problems
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.settings import Settings
from everstep_controller.drivers.drivers import DriversConfig
from everstep_controller.enrolment.settings import EnrolmentSettings
from everstep_controller.journal.address import is_url, other_scheme
from everstep_controller.journal.synchrony import WantedSynchrony
from everstep_controller.webhooks.config import WebhookConfig, name_problem
from everstep_proto.local.address import (
    DEFAULT_SHOWN,
    SECRET_SHOWN,
    address_problem,
    default_address,
    default_secret_file,
    socket_path,
)
from everstep_proto.tls import TlsSettings

# Roles of a controller.
ACTIVE, STANDBY = "active", "standby"


def default_journal() -> Path:
    """Return the journal of a service, or of a user who may not write there."""
    system = Path("/var/lib/everstep-controller")
    if os.access(system if system.exists() else system.parent, os.W_OK):
        return system / "journal.sqlite"
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "everstep-controller" / "journal.sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Keys of the controller's configuration file. Durations are in seconds."""

    listen: str = setting(
        factory=default_address,
        shown=DEFAULT_SHOWN,
        help="Where agents and the command line connect: unix:/path, a socket in a folder that "
        "only its owner and group may enter, or host:port. Other addresses than loopback need "
        "[tls]. Who may enter the folder, or knows the secret on loopback, is an operator.",
    )
    secret_file: Path = setting(
        factory=default_secret_file,
        shown=SECRET_SHOWN,
        help="Secret of this machine, for host:port on loopback without [tls]: agents and the "
        "command line show it with each call. The controller makes the file; one that is replaced "
        "counts at once.",
    )
    role: str = setting(
        ACTIVE,
        help="active, or standby: this controller follows the journal of the one that writes it, "
        "answers questions, and takes over when that one is gone; where nobody writes it does so "
        "at once, so that all controllers of a cluster may have the same configuration. Needs a "
        "journal in PostgreSQL; docs/postgresql.md.",
    )
    address: str = setting(
        "",
        unit="host:port",
        help="Under which agents and the command line reach this controller: another controller of "
        "the cluster sends them here while this one writes the journal. By default this machine's "
        "host name, with the port of listen.",
    )
    stream_processes: int = not_negative(
        0,
        unit="processes",
        help="So many processes accept the streams of agents and hand on what they say. 0: the "
        "controller does it itself, which is enough for 5,000 nodes whose jobs make a step every "
        "5 s; 2 or 3 for 12,500. Not for a Unix socket.",
    )
    metrics: str = setting(
        "127.0.0.1:7434",
        unit="host:port",
        help="Where Prometheus finds /metrics; encrypted as [tls] says, except on loopback. "
        "Empty for none. Port 0 picks a free one.",
    )
    journal: str = setting(
        factory=lambda: str(default_journal()),
        shown="/var/lib/everstep-controller/journal.sqlite where that may be written, else "
        "$XDG_STATE_HOME/everstep-controller/journal.sqlite",
        help="The journal, an SQLite file on a local disk, whose folder is created, or a database "
        "of PostgreSQL: postgresql://USER@HOST/DATABASE; docs/postgresql.md. Everything the "
        "controller knows is in it.",
    )
    journal_password_file: CredentialFile | None = setting(
        None,
        help="The file with the password of the database's user, where it has one; it is read for "
        "each connection.",
    )
    journal_synchrony: WantedSynchrony = setting(
        WantedSynchrony.AUTO,
        help="When commits of a journal in PostgreSQL that are on one server alone are a finding "
        "(JournalUnreplicated): auto, where they were on a standby before; required, always; "
        "ignored, never.",
    )
    state_folder: Path = setting(
        factory=Path,
        shown="the journal's folder; where the journal is in PostgreSQL, that of the default "
        "journal",
        help="Where that lies which is not in the journal: how far webhooks have come, and what "
        "verdicts on hangs were made of.",
    )
    cluster_file: Path = setting(
        factory=Path,
        shown="beside the configuration file, with its name and the ending .cluster: "
        "/etc/everstep/controller.cluster; without a configuration file beside the journal",
        help="Id and newest term of the cluster, kept outside the journal: a controller whose "
        "journal is lost or old knows by it which agents are its own, and that it has to halt. "
        "The controller makes it and must be able to write it.",
    )
    events_retention_days: float = positive(
        7.0,
        unit="days",
        help="How long events and decisions are kept for 'everstep-controller replay': a week "
        "covers an incident at the weekend.",
    )
    announcements_retention_days: float = positive(
        90.0,
        unit="days",
        help="How long the event list of 'everstep events' is kept.",
    )
    history_retention_days: float = positive(
        400.0,
        unit="days",
        help="How long the history is kept: each incident with its cost and evidence, where the "
        "time of each job went by the hour, and the days of nodes on which something happened; a "
        "year and a month. What is deleted of events and the event list does not touch it.",
    )
    price_per_device_hour: float = not_negative(
        0.0,
        unit="your currency",
        help="What a device (an accelerator, or a rank where there is none) costs for an hour, in "
        "your currency: 'everstep ettr' of the fleet tells costs by it. 0 for none.",
    )
    state_snapshot_interval_s: float = positive(
        300.0,
        unit="s",
        help="How often a snapshot of the state is written; a restart replays only the events "
        "after it.",
    )
    samples_window: int = positive(
        120,
        unit="rows",
        help="Samples kept of each node in memory: two minutes at 1 Hz, 56 bytes a row.",
    )
    judge_interval_s: float = positive(
        5.0,
        unit="s",
        help="How often nodes are compared with their peers: samples arrive every 5 s.",
    )
    log_level: str = setting("info", help="debug, info, warning or error.")
    log_style: str = setting(
        "auto", help="text, json, or auto: the journal's priorities under systemd, else text."
    )
    core: Settings = setting(factory=Settings, help="How the controller decides.")
    drivers: DriversConfig = setting(
        factory=DriversConfig, help="Who else places work on the nodes."
    )
    webhooks: Mapping[str, WebhookConfig] = setting(
        factory=dict, help="Who is told of decisions, findings and incidents; docs/webhooks.md."
    )
    groups: Mapping[str, Group] = setting(
        factory=dict, help="Groups of nodes, by their names: what is set for them alone."
    )
    tls: TlsSettings = setting(factory=TlsSettings, help="Certificates.")
    enrolment: EnrolmentSettings = setting(
        factory=EnrolmentSettings,
        help="How nodes get and renew their certificates; docs/enrolment.md.",
    )

    @property
    def own_address(self) -> str:
        """Return under which address others reach this controller."""
        if self.address or socket_path(self.listen) is not None:
            return self.address or self.listen
        return f"{socket.gethostname()}:{split_address(self.listen)[1]}"

    def cluster_file_beside(self, config: Path | None) -> Path:
        """Return the cluster file, beside the configuration file where it is not set."""
        if self.cluster_file != Path():
            return self.cluster_file
        return (config or self._beside_journal).with_suffix(".cluster")

    def webhook_cursor(self, name: str) -> Path:
        """Return the file that says how far a webhook has come: beside the journal."""
        return self._beside_journal.with_suffix(".webhooks") / f"{name}.json"

    @property
    def hang_evidence(self) -> Path:
        """Return the folder for what verdicts on hangs were made of: beside the journal."""
        return self._beside_journal.with_suffix(".hangs")

    @property
    def _beside_journal(self) -> Path:
        journal = default_journal() if is_url(self.journal) else Path(self.journal)
        return journal if self.state_folder == Path() else self.state_folder / journal.name

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        found = [problem for problem in [address_problem("listen", self.listen)] if problem]
        found += _journal_problems(self.journal, has_password_file=bool(self.journal_password_file))
        if self.stream_processes and socket_path(self.listen) is not None:
            found.append("stream_processes: is for listen = host:port, not for a Unix socket")
        found += _role_problems(self.role, self.journal)
        if self.address:
            found += _address_problems("address", self.address)
        if self.metrics:
            found += _address_problems("metrics", self.metrics)
        addresses = {"listen": self.listen, "metrics": self.metrics}
        exposed = {k: v for k, v in addresses.items() if v and not address_problem(k, v)}
        found += self.tls.problems(exposed)
        enrolment = self.enrolment.problems(encrypted=self.tls.enabled)
        found += [f"enrolment.{problem}" for problem in enrolment]
        if self.enrolment.kubernetes_accounts and not self.drivers.kubernetes.access:
            found.append(
                "enrolment.kubernetes_accounts: needs drivers.kubernetes.access, the API server "
                'that knows their tokens, such as "in-cluster"'
            )
        found += [f"core.{problem}" for problem in self.core.problems()]
        found += [f"drivers.{problem}" for problem in self.drivers.problems()]
        found += _webhook_problems(self.webhooks)
        found += group_problems(self.groups, self.drivers)
        if self.log_level not in ("debug", "info", "warning", "error"):
            found.append(
                f"log_level: expected debug, info, warning or error, got {self.log_level!r}"
            )
        if self.log_style not in ("auto", "text", "json"):
            found.append(f"log_style: expected auto, text or json, got {self.log_style!r}")
        return found


def _role_problems(role: str, journal: str) -> Iterator[str]:
    if role not in (ACTIVE, STANDBY):
        yield f"role: expected {ACTIVE} or {STANDBY}, got {role!r}"
    elif role == STANDBY and not is_url(journal):
        yield (
            "role: a standby follows a journal in PostgreSQL, and journal is a file: name a "
            "database (docs/postgresql.md), or remove role"
        )


def _journal_problems(journal: str, *, has_password_file: bool) -> Iterator[str]:
    if not is_url(journal):
        if scheme := other_scheme(journal):
            yield (
                "journal: expected the path of a file or postgresql://USER@HOST/DATABASE, got "
                f"{scheme}"
            )
        if has_password_file:
            yield "journal_password_file: the journal is a file, which has none"
    elif importlib.util.find_spec("psycopg") is None:
        yield f"journal: needs a client of PostgreSQL: {install_line('postgres')}"
    else:
        # Its libraries take 0.1 s to import, which no other start need wait for.
        from everstep_controller.journal.postgres.connection import url_problem

        if problem := url_problem(
            journal, has_password_file=has_password_file, environment=os.environ
        ):
            yield f"journal: {problem}"


def _webhook_problems(webhooks: Mapping[str, WebhookConfig]) -> Iterator[str]:
    for name, webhook in webhooks.items():
        if problem := name_problem(name):
            yield f"webhooks.{name}: {problem}"
        yield from (f"webhooks.{name}.{problem}" for problem in webhook.problems())


def _address_problems(key: str, value: str) -> list[str]:
    host, port = split_address(value)
    if host and port.isdigit() and int(port) < 65536:
        return []
    return [f"{key}: expected host:port, got {value!r}"]
