"""Agent configuration: the settings of an agent, their units and defaults."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from everstep_agent.config.signal_settings import SignalsSettings
from everstep_agent.enrolment.settings import EnrolmentSettings
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_common.addresses import is_loopback, split_address
from everstep_common.bounds import Name, matcher
from everstep_common.config import setting
from everstep_common.quantities import HostName
from everstep_common.setting import not_negative, positive
from everstep_proto.controllers import addresses_problem, only_here, split_addresses
from everstep_proto.local.address import (
    DEFAULT_SHOWN,
    SECRET_SHOWN,
    default_address,
    default_secret_file,
)
from everstep_proto.tls import TlsSettings

# What the controller takes for the name of a node.
(_NODE_NAME,) = (one for one in get_args(HostName) if isinstance(one, Name))
_LEVELS = ("debug", "info", "warning", "error")
_STYLES = ("auto", "text", "json")
_INVENTORY = Path("/etc/everstep/inventory.toml")
_RULES = Path("/etc/everstep/rules.d")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One agent. Durations are in seconds."""

    node: str = setting(
        "",
        help="Name of the node; empty means the host name. With TLS it is the certificate's name.",
    )
    controller: str | tuple[str, ...] = setting(
        factory=default_address,
        shown=DEFAULT_SHOWN,
        help="Address of the controller: unix:/path of its socket, or host:port. By default the "
        "socket, so that a single machine works without any configuration. Where there is a "
        'standby, a list of the addresses of all: ["ctl-a:7433", "ctl-b:7433"]. The agent goes to '
        "the active one, and to no address that is not listed.",
    )
    secret_file: Path = setting(
        factory=default_secret_file,
        shown=SECRET_SHOWN,
        help="Secret of a controller at host:port on loopback without [tls]; it is sent only to a "
        "process of root, of the agent's user, or of the owner of this file.",
    )
    domain: str = setting(
        "",
        help="Failure domain of the node (rack, leaf switch, power feed); empty when unknown. "
        "Replicas go to another domain where there is one.",
    )
    host: str = setting(
        "",
        help="Host name or address under which training processes of other nodes reach this one; "
        "empty means the host name, or 127.0.0.1 while the controller is on this machine.",
    )
    data_folder: Path | None = setting(
        None,
        help="Folder of the outbox. Not set: /var/lib/everstep-agent for root, else "
        "~/.local/state/everstep-agent.",
    )
    metrics_address: str = setting(
        "127.0.0.1:7435",
        help="host:port of /metrics for Prometheus; encrypted as [tls] says, except on loopback. "
        "Port 0 picks a free one, empty none.",
    )
    liveness_address: str = setting(
        "127.0.0.1:7437",
        help="host:port (UDP) on which this agent answers its peers and probes them; port 0 picks "
        "a free one.",
    )
    kernel_log: Path = setting(
        Path("/dev/kmsg"),
        help="Where kernel messages come from. A plain file is followed like tail -F: for "
        "forwarded logs and for fault injection. It must be one that only the kernel's lines come "
        "to: into /var/log/messages any user can write (logger -t kernel), and such a line may "
        "isolate the node.",
    )
    fabric_manager_log: Path = setting(
        Path("/var/log/fabricmanager.log"),
        help="Log of NVIDIA's fabric manager, whose service stays active while it refuses what "
        "jobs ask of it. A file that is not there is no fault.",
    )
    system_log: Path | None = setting(
        None,
        shown="none is read",
        help="System log, such as /var/log/syslog or /var/log/messages, or GPFS's own "
        "(/var/adm/ras/mmfs.log.latest): what smartd and GPFS write to it is judged. The agent's "
        "user has to be able to read it. Any user can write to a system log, so what it tells is "
        "only observed.",
    )
    sysfs: Path = setting(
        Path("/sys"), help="Root of sysfs; another one for tests and for an agent in a container."
    )
    proc: Path = setting(Path("/proc"), help="Root of procfs; see sysfs.")
    health_check_socket: str | None = setting(
        None,
        shown="nvhcd.sock in jobs.runtime_folder",
        help="Unix socket on which ft_launcher of NVIDIA's resiliency extension checks this "
        "node (its --ft-node-health-check-endpoint); empty: none.",
    )
    health_connections_per_user_max: int = setting(
        128,
        help="Most connections of one user at once to each of the sockets that tell of the node's "
        "health: 64 ranks that all ask, twice.",
    )
    health_questions_per_user_per_s: float = setting(
        32.0,
        unit="1/s",
        help="Connections that a user may make to each of these sockets in a second, for long; "
        "four seconds' worth at once. An answer takes the agent about a millisecond. 0: no limit.",
    )
    fault_injection: bool = setting(
        False,
        help="Whether operators may inject faults into this node with `everstep inject`. Off, "
        "because an injected fault costs a job as much time as a real one.",
    )
    gpus_expected: int = not_negative(
        0,
        help="How many GPUs must answer; 0: those that are found.",
    )
    inventory: Path | None = setting(
        None,
        shown=f"{_INVENTORY} if it exists",
        help="Expected hardware of this node, as `everstep-agent inventory` writes it; one "
        "file serves all nodes of a type. A missing GPU, link, disk or memory module is a"
        " finding.",
    )
    rules: Path | None = setting(
        None,
        shown=f"{_RULES} if it exists",
        help="Folder of your own rules over kernel lines: files *.toml, in the order of their "
        "names. `everstep-agent rules check FILE` checks them; with a mistake in one of them the "
        "agent does not start.",
    )
    links_required: tuple[str, ...] = setting(
        (),
        help='Interfaces ("eth0") and InfiniBand ports ("mlx5_0/1") that must be up. Others '
        "are judged only once they have been up, because an unused port is no fault.",
    )
    kernel_log_interval_s: float = positive(
        1.0,
        unit="s",
        help="Longest time between two reads of the kernel log. A new line triggers a read at "
        "once, except in a file on a file system without inotify.",
    )
    probe_deadline_s: float = positive(
        5.0,
        unit="s",
        help="Deadline of a read of the host, disks, links or kernel log; a read that misses "
        "it is a finding. Healthy ones take milliseconds.",
    )
    gpu_deadline_s: float = positive(
        5.0,
        unit="s",
        help="How long the GPU driver may take to answer before its process is replaced; a busy "
        "healthy driver answers within a second.",
    )
    gpu_first_deadline_s: float = positive(
        30.0,
        unit="s",
        help="The same for the first answer: without persistence mode the driver initialises eight "
        "GPUs in 10 to 20 s.",
    )
    check_deadline_s: float = positive(
        60.0,
        unit="s",
        help="How long a check of the node may take: longer than the first answer of a GPU driver.",
    )
    connect_timeout_s: float = positive(
        10.0,
        unit="s",
        help="How long the controller may take to answer Hello; one that replays a journal needs "
        "seconds.",
    )
    controller_timeout_s: float = positive(
        35.0,
        unit="s",
        help="After so long without a message of the controller the agent reconnects. The "
        "controller asks for the time every 10 s, so three are missed.",
    )
    reconnect_backoff_max_s: float = positive(
        5.0,
        unit="s",
        help="Longest wait between attempts to reach the controller. With jitter, 2,000 agents are "
        "back within 2 s of its return. In the first 10 s after a stream that was good, no wait is "
        "longer than 0.5 s.",
    )
    outbox_records_max: int = positive(
        50_000,
        help="Most records that wait while the controller is away; beyond it, progress is "
        "dropped first. 50,000 are three hours of one running job, about 50 MB.",
    )
    outbox_write_timeout_s: float = positive(
        5.0,
        unit="s",
        help="How long a write of the outbox may take before it is a finding; sending never waits "
        "for it.",
    )
    log_level: str = setting("info", help='"debug", "info", "warning" or "error".')
    log_style: str = setting(
        "auto", help='"auto" (systemd journal where there is one), "text" or "json".'
    )
    tls: TlsSettings = field(default_factory=TlsSettings)
    enrolment: EnrolmentSettings = field(default_factory=EnrolmentSettings)
    jobs: JobsSettings = field(default_factory=JobsSettings)
    signals: SignalsSettings = field(default_factory=SignalsSettings)

    @property
    def node_name(self) -> str:
        """Return the name that this node has in the fleet."""
        return self.node or socket.gethostname()

    @property
    def controllers(self) -> tuple[str, ...]:
        """Return the addresses of all controllers, the one to try first at the beginning."""
        return split_addresses(self.controller)

    @property
    def reachable_host(self) -> str:
        """Return where processes of other nodes reach this one."""
        local = "127.0.0.1" if only_here(self.controllers) else socket.gethostname()
        return self.host or local

    def announced(self, bulk_address: str) -> str:
        """Return where other nodes reach this one's copies; empty where none of them can.

        Whoever is given loopback reaches itself: it would send copies to itself, and take its own
        kernel's answer for that of a node that is dead.
        """
        alone = is_loopback(bulk_address) and not only_here(self.controllers)
        return "" if alone else bulk_address

    def unreachable(self) -> list[str]:
        """Say what other nodes cannot reach, and which key to set."""
        if only_here(self.controllers):
            return []
        copies = self.jobs.bulk_advertise_host or self.jobs.bulk_host
        said = {
            "jobs.bulk_host": (copies, "this node holds no copies for other nodes"),
            "liveness_address": (self.liveness_address, "no other node can see that it is alive"),
        }
        return [
            f"{key}: {value} is reached from this machine alone, and the controller is on another: "
            f"{cost}; set {key} to this node's address"
            for key, (value, cost) in said.items()
            if is_loopback(value)
        ]

    @property
    def state_folder(self) -> Path:
        """Return the folder of the outbox."""
        return self.data_folder or default_data_folder()

    @property
    def health_check_path(self) -> Path | None:
        """Return where the health-check service listens; None for nowhere."""
        if self.health_check_socket == "":
            return None
        return Path(self.health_check_socket or self.jobs.runtime_folder / "nvhcd.sock")

    @property
    def inventory_file(self) -> Path | None:
        """Return the file of the expected inventory; None where nothing is expected."""
        return self.inventory or (_INVENTORY if _INVENTORY.exists() else None)

    @property
    def rules_folder(self) -> Path | None:
        """Return the folder of the site's own rules; None where there is none."""
        return self.rules or (_RULES if _RULES.exists() else None)

    def problems(self) -> list[str]:
        """Say what is wrong with the values, in the operator's words."""
        found: list[str] = []
        if self.node and not matcher(_NODE_NAME.pattern)(self.node):
            found.append(f"node: expected {_NODE_NAME.words}, got {self.node!r}")
        addresses = {"liveness_address": self.liveness_address}
        if self.metrics_address:
            addresses["metrics_address"] = self.metrics_address
        malformed = {
            key: f"{key}: expected host:port, got {value!r}"
            for key, value in addresses.items()
            if not _is_address(value)
        }
        found += malformed.values()
        wellformed = {key: value for key, value in addresses.items() if key not in malformed}
        if problem := addresses_problem("controller", self.controllers):
            found.append(problem)
        else:
            wellformed |= _keyed_controllers(self.controllers)
        if self.state_folder == self.jobs.runtime_folder:
            found.append("data_folder: must be another folder than jobs.runtime_folder")
        for key, known in (("log_level", _LEVELS), ("log_style", _STYLES)):
            if getattr(self, key) not in known:
                found.append(
                    f"{key}: expected one of {', '.join(known)}, got {getattr(self, key)!r}"
                )
        found += self._tls_problems({**wellformed, "jobs.bulk_host": self.jobs.bulk_host})
        found += self._enrolment_problems()
        return found + self.jobs.problems() + self.signals.problems()

    def _tls_problems(self, addresses: Mapping[str, str]) -> list[str]:
        if self._is_to_enrol:
            return []
        found = self.tls.problems(addresses)
        if self.jobs.bulk_tls and not self.tls.enabled:
            found.append(_NO_CERTIFICATE)
        return found

    @property
    def _is_to_enrol(self) -> bool:
        """Return whether a certificate is still to come (commands/pod_enrolment.py)."""
        return self.enrolment.by_pod and not self.tls.enabled

    def _enrolment_problems(self) -> list[str]:
        addresses = self.enrolment.addresses
        found = [
            f"enrolment.address: expected host:port, got {address!r}"
            for address in addresses
            if not _is_address(address)
        ]
        has_files = any((self.tls.ca, self.tls.certificate, self.tls.key))
        if not self.tls.enabled:
            found += self.enrolment.pod_problems(has_files=has_files)
        if addresses and not self.tls.enabled and not self._is_to_enrol:
            found.append(
                "enrolment.address: there is no certificate in [tls] to renew; run 'everstep-agent "
                "join TOKEN CONTROLLER', which writes both"
            )
        return found


_NO_CERTIFICATE = (
    "jobs.bulk_tls: needs a certificate of this node: set ca, certificate and key in the table "
    "[tls] (docs/installing.md, Certificates), or set jobs.bulk_tls = false"
)


def default_data_folder(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Return where an agent keeps what must outlive it: the system's place for root."""
    if (os.geteuid() if uid is None else uid) == 0:
        return Path("/var/lib/everstep-agent")
    base = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "/tmp")) / ".local/state"
    return Path(base) / "everstep-agent"


def _keyed_controllers(addresses: Sequence[str]) -> dict[str, str]:
    """Return each address under the key by which a problem with it is told."""
    if len(addresses) == 1:
        return {"controller": addresses[0]}
    return {f"controller[{place}]": address for place, address in enumerate(addresses)}


def _is_address(value: str) -> bool:
    host, port = split_address(value)
    return bool(host) and port.isdigit() and int(port) <= 65535
