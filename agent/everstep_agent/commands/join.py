"""``everstep-agent join``: gets this node its certificate by a token, and configures its agent.

The key is made here and never leaves. Everything is looked at before anything is written, and the
configuration comes last: a join that fails leaves a node as it was.
"""

import argparse
import os
import socket
import sqlite3
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.enrolment.certificate_files import CertificateFiles, FilesError
from everstep_agent.enrolment.client import EnrolmentClients, EnrolmentError, RefusedError
from everstep_agent.persistence.agent_database import CLUSTER_NOTE
from everstep_agent.persistence.data_folder import agent_database
from everstep_common.addresses import is_loopback, split_address
from everstep_common.config import EX_CONFIG, ConfigError, load
from everstep_common.toml_edit import Key, TomlConflictError, Value, with_values
from everstep_proto.controllers import split_addresses
from everstep_proto.enrolment.certificate_requests import make_request
from everstep_proto.enrolment.messages import (
    CLOCK_APART_MAX_S,
    DEFAULT_PORT,
    ENROL_PATH,
    AuthorityReply,
    CertificateReply,
    EnrolRequest,
)
from everstep_proto.enrolment.owned_files import replace_file
from everstep_proto.enrolment.token_text import TokenError, TokenText, read_token
from everstep_proto.enrolment.validity import Validity
from everstep_proto.tls import TlsSettings, channel_credentials, channel_options

_DEFAULT_CONFIG = Path("/etc/everstep/agent.toml")
_SHIPPED_CONTROLLER = "unix:/run/everstep-controller/controller.sock"
_CHECK_S = 15.0
_PORTS = {"metrics_address": 7435, "liveness_address": 7437}


class JoinError(Exception):
    """The node has not joined; one sentence that says what to type."""


@dataclass(frozen=True, slots=True)
class Join:
    """What is to be joined: by which token, where, as which node, configured in which file."""

    token: TokenText
    # The address of the controller; of several, with commas between them.
    controller: str
    node: str
    config: Path

    def client(self) -> EnrolmentClients:
        """Return the client of the controllers' enrolment ports. Raises JoinError."""
        ports = [_enrolment_port(one) for one in split_addresses(self.controller)]
        if len(set(ports)) < len(ports):
            raise JoinError(f"{self.controller!r} has an address twice")
        return EnrolmentClients(ports)


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code: 0 joined, 1 not, 78 wrong configuration."""
    given = _parser().parse_args(words)
    path = given.config or _DEFAULT_CONFIG
    try:
        text = path.read_text() if path.exists() else ""
        config = load(AgentConfig, path if path.exists() else None)
        node = given.node or config.node_name
        join = Join(read_token(_token(given.token)), given.controller, node, path)
        for line in run(join, config, text):
            print(line)
    except ConfigError as error:
        for problem in error.problems:
            print(f"everstep-agent join: {problem}", file=sys.stderr)
        return EX_CONFIG
    except (JoinError, TokenError, EnrolmentError, FilesError) as error:
        print(f"everstep-agent join: {error}; this node is as it was", file=sys.stderr)
        return 1
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        print(
            f"everstep-agent join: {what}{error.strerror or error}; run it as root, or with "
            "--config FILE whose data_folder is yours",
            file=sys.stderr,
        )
        return 1
    return 0


def run(join: Join, config: AgentConfig, text: str) -> Iterator[str]:
    """Join; yield a line for each thing that was done. Raises what main catches."""
    client, files = join.client(), CertificateFiles.below(config.state_folder)
    # As far as it is known by now: what could not be written at the end is not begun.
    _configured(text, _certificate_keys(files, client), join.config)
    _check_writable(join.config, config.state_folder)
    reply, authority = client.pinned_authority(join.token.authority)
    _check_clock(reply, join.controller)
    _check_cluster(config, reply.cluster_id)
    files.prepare()
    key = files.joining_key()
    request = EnrolRequest(
        token_id=join.token.id,
        secret=join.token.secret,
        node=join.node,
        request=make_request(key, join.node).decode(),
        clock_s=time.time(),
    )
    try:
        signed = client.ask(authority, ENROL_PATH, request, CertificateReply)
    except RefusedError:
        files.abandon()
        raise
    wanted = _all_keys(join, config, text, files, client, signed)
    made = _configured(text, wanted, join.config)
    yield _enrolled(join, files, files.install(key, signed, join.node))
    if made != text:
        join.config.parent.mkdir(parents=True, exist_ok=True)
        mode = join.config.stat().st_mode & 0o777 if join.config.exists() else 0o644
        replace_file(join.config, made.encode(), mode)
    named = ", ".join(f"{table}.{key}" if table else key for table, key in wanted)
    yield f"configuration: {join.config} has {named} now"
    yield from _check_connections(_controllers(client, signed), files)
    yield "start the agent, and 'everstep nodes' shows this node:"
    yield "  systemctl enable everstep-agent && systemctl restart everstep-agent"


def _enrolment_port(address: str) -> str:
    host, port = split_address(address)
    if not host or (port and not port.isdigit()):
        raise JoinError(
            f"{address!r} is no address: expected a host, or host:port of its enrolment.listen"
        )
    return f"{_shown(host)}:{port or DEFAULT_PORT}"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


# --- the configuration ---------------------------------------------------------------------------


def _controllers(client: EnrolmentClients, signed: CertificateReply) -> list[str]:
    """Return the addresses at which controllers take agents: the same port at each."""
    hosts = dict.fromkeys(split_address(address)[0] for address in client.addresses)
    return [f"{_shown(host)}:{signed.port}" for host in hosts]


def _one_or_list(addresses: Sequence[str]) -> Value:
    return addresses[0] if len(addresses) == 1 else list(addresses)


def _certificate_keys(files: CertificateFiles, client: EnrolmentClients) -> dict[Key, Value]:
    return {
        ("tls", "ca"): str(files.authorities),
        ("tls", "certificate"): str(files.own),
        ("tls", "key"): str(files.own),
        ("enrolment", "address"): _one_or_list(client.addresses),
    }


def _all_keys(
    join: Join,
    config: AgentConfig,
    text: str,
    files: CertificateFiles,
    client: EnrolmentClients,
    signed: CertificateReply,
) -> dict[Key, Value]:
    wanted: dict[Key, Value] = {("", "controller"): _one_or_list(_controllers(client, signed))}
    wanted |= _certificate_keys(files, client)
    wanted["enrolment", "cluster"] = signed.cluster_id
    if join.node != socket.gethostname() or config.node:
        wanted["", "node"] = join.node
    told = tomllib.loads(text)
    if "data_folder" not in told:
        wanted["", "data_folder"] = str(config.state_folder)
    return wanted | _own_addresses(told, client.own_address)


def _own_addresses(told: dict[str, Any], own: str) -> dict[Key, Value]:
    """Return the keys that say where other nodes reach this one, but those that somebody chose."""
    if not own or is_loopback(own):
        return {}
    shown = _shown(own)
    found: dict[Key, Value] = {("", "host"): own}
    found |= {("", key): f"{shown}:{port}" for key, port in _PORTS.items()}
    found["jobs", "bulk_host"] = own
    return {
        (table, key): value
        for (table, key), value in found.items()
        if key not in (told.get(table, {}) if table else told)
    }


def _configured(text: str, wanted: dict[Key, Value], path: Path) -> str:
    """Return the configuration as it is to be. Raises JoinError where that is somebody else's."""
    try:
        return with_values(text, wanted, {("", "controller"): _SHIPPED_CONTROLLER})
    except (TomlConflictError, ValueError) as error:
        raise JoinError(
            f"{path}: {error}: remove this key to have it written by this command, or keep what is "
            "there and do not join by a token"
        ) from error


def _check_writable(*paths: Path) -> None:
    for path in paths:
        there = path
        while not there.exists():
            there = there.parent
        if not os.access(there, os.W_OK):
            raise JoinError(
                f"{there} cannot be written: run this as root, or with --config FILE whose "
                "data_folder is yours"
            )


# --- what is asked before anything is begun ------------------------------------------------------


def _check_clock(reply: AuthorityReply, controller: str) -> None:
    apart_s = time.time() - reply.clock_s
    if abs(apart_s) > CLOCK_APART_MAX_S:
        where = "ahead of" if apart_s > 0 else "behind"
        raise JoinError(
            f"this node's clock is {timedelta(seconds=round(abs(apart_s)))} {where} that of the "
            f"controller at {controller}, by which certificates begin and end: 'timedatectl' shows "
            "which is wrong, 'timedatectl set-ntp true' sets it; then join again"
        )


def _check_cluster(config: AgentConfig, cluster: str) -> None:
    """See that the agent is of no other cluster. Raises JoinError."""
    known = config.enrolment.cluster or _remembered_cluster(config.state_folder)
    if known and cluster and known != cluster:
        raise JoinError(
            f"this node's agent belongs to cluster {known}, and the controller is of {cluster}: "
            "stop the agent, run 'everstep-agent leave-cluster' and remove the table [enrolment]; "
            "then join again"
        )


def _remembered_cluster(data_folder: Path) -> str:
    database = agent_database(data_folder)
    if not database.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as opened:
            row = opened.execute("SELECT value FROM note WHERE key = ?", (CLUSTER_NOTE,)).fetchone()
    except sqlite3.Error:  # the agent says so itself when it starts
        return ""
    return str(row[0]) if row else ""


# --- what was done -------------------------------------------------------------------------------


def _enrolled(join: Join, files: CertificateFiles, known: Validity) -> str:
    ends = datetime.fromtimestamp(known.ends_s, UTC)
    return (
        f"{join.node} has certificate {known.serial} until {ends:%Y-%m-%dT%H:%M:%SZ}, in "
        f"{files.own} (mode 0600); its agent renews it"
    )


def _check_connections(addresses: Sequence[str], files: CertificateFiles) -> Iterator[str]:
    """See which controllers take the certificate. Raises JoinError where none does."""
    taken = [one for one in addresses if _takes(one, files, _CHECK_S / len(addresses))]
    if not taken:
        raise JoinError(
            "the certificate and the configuration are written, but the controller at "
            f"{' or '.join(addresses)} is not reached with them within {_CHECK_S:.0f} s: is this "
            "port open from here? The agent goes on trying when it is started"
        )
    for address in addresses:
        if address in taken:
            yield f"the controller at {address} takes this certificate"
        else:
            yield f"the controller at {address} is not reached now: is this port open from here?"


def _takes(address: str, files: CertificateFiles, within_s: float) -> bool:
    tls = TlsSettings(ca=files.authorities, certificate=files.own, key=files.own)
    with grpc.secure_channel(address, channel_credentials(tls), channel_options(tls)) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=within_s)
        except grpc.FutureTimeoutError:
            return False
    return True


def _token(text: str) -> str:
    """Return a token; "-" is read from standard input, "@FILE" from a file."""
    if text == "-":
        return sys.stdin.readline()
    return Path(text[1:]).read_text() if text.startswith("@") else text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="everstep-agent join",
        description="Gets this node a certificate by a token, and configures its agent.",
        epilog="The key is made on this node and stays there. 'everstep tokens make --node NAME' "
        "on the controller's machine prints the whole line to type.",
    )
    parser.add_argument(
        "token",
        metavar="TOKEN",
        help="the token; - reads it from standard input, @FILE from a file",
    )
    parser.add_argument(
        "controller",
        metavar="CONTROLLER[,CONTROLLER]",
        help=f"host, or host:port; {DEFAULT_PORT} by default",
    )
    parser.add_argument(
        "--node", metavar="NAME", help="name of this node; the host name by default"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"{_DEFAULT_CONFIG} by default")
    return parser
