"""Refused connections: what people type next, from the sentence of the server or of libpq. Pure.

libpq tells no code for a connection that is refused, so the English sentences are looked through;
one in another language is shown as it is.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attempt:
    """A connection that was tried: the address, who tried it, and how long a server may take."""

    # Parameters of the address, as libpq names them.
    parts: Mapping[str, object]
    # User of this process, who is the database's user where the address names none.
    process_user: str
    connect_s: int

    @property
    def user(self) -> str:
        """Return the user of the database."""
        return str(self.parts.get("user") or self.process_user)

    @property
    def servers(self) -> str:
        """Return the servers of the address, as people name them."""
        hosts = str(self.parts.get("hostaddr") or self.parts.get("host") or "").split(",")
        ports = str(self.parts.get("port") or "5432").split(",")
        if len(ports) < len(hosts):
            ports = ports[:1] * len(hosts)
        told = zip(hosts, ports, strict=False)
        return " and ".join(f"{host or 'the local socket'}, port {port}" for host, port in told)


_Advice = Callable[[re.Match[str], Attempt], str]


def _make_database(found: re.Match[str], attempt: Attempt) -> str:
    made = f"createdb --owner {shlex.quote(attempt.user)} {shlex.quote(found['name'])}"
    return (
        f"make it as the server's superuser, 'runuser -u postgres -- {made}'; or correct the name "
        "in 'journal'. Where there was one with a journal, restore it from a backup instead"
    )


def _make_user(found: re.Match[str], _: Attempt) -> str:
    return (
        "make it as the server's superuser, 'runuser -u postgres -- createuser "
        f"{shlex.quote(found['name'])}', or name another in 'journal': postgresql://USER@…"
    )


def _be_peer(found: re.Match[str], attempt: Attempt) -> str:
    user = shlex.quote(found["name"])
    return (
        f"on a socket the server asks the kernel, and this process runs as {attempt.process_user}: "
        f"start it as {found['name']} ('runuser -u {user} -- …'), or take a host instead of the "
        "socket's folder, and a journal_password_file"
    )


def _let_in(found: re.Match[str], attempt: Attempt) -> str:
    kind = "host" if str(attempt.parts.get("sslmode")) == "disable" else "hostssl"
    return (
        f"let it in by a line of the server's pg_hba.conf, '{kind} {found['database']} "
        f"{found['name']} {found['address']}/{128 if ':' in found['address'] else 32} "
        "scram-sha-256', before any that rejects it; then 'select pg_reload_conf()'"
    )


def _be_postgres(_: re.Match[str], attempt: Attempt) -> str:
    return (
        f"what answers at {attempt.servers} speaks another protocol than PostgreSQL, or is a proxy "
        "without a server behind it: correct host and port in 'journal' (5432 where none is named)"
    )


def _answer_in_time(_: re.Match[str], attempt: Attempt) -> str:
    return (
        f"{attempt.servers}: no answer within {attempt.connect_s} s; correct host and port in "
        "'journal', or let this machine through the firewall: 'pg_isready --host HOST --port PORT' "
        "asks the same"
    )


def _text(advice: str) -> _Advice:
    return lambda _, __: advice


# The first that is found counts: of several servers one may be away, and another one refuse.
_ADVICE: tuple[tuple[str, _Advice], ...] = (
    (r'database "(?P<name>[^"]+)" does not exist', _make_database),
    (r'role "(?P<name>[^"]+)" does not exist', _make_user),
    (r'Peer authentication failed for user "(?P<name>[^"]+)"', _be_peer),
    (
        r'(?:no pg_hba\.conf entry|pg_hba\.conf rejects connection) for host "(?P<address>[^"]+)", '
        r'user "(?P<name>[^"]+)", database "(?P<database>[^"]+)"',
        _let_in,
    ),
    (
        r"does not support SSL",
        _text(
            "have the server encrypt, 'ssl = on' with a certificate of its own; or say "
            "sslmode=disable in 'journal' on a network that nobody else hears"
        ),
    ),
    (
        r"too many clients already|remaining connection slots|too many connections",
        _text("raise the server's max_connections, or the connection limit of the user"),
    ),
    (
        r"invalid response to SSL negotiation|expected authentication request|"
        r"unexpected eof while reading|server closed the connection unexpectedly",
        _be_postgres,
    ),
    (r"connection timeout expired|timeout expired", _answer_in_time),
    (
        r"could not translate host name|failed to resolve host",
        _text("correct the host in 'journal', or have it resolved: 'getent hosts HOST' asks"),
    ),
    (
        r"Connection refused",
        _text("start the server ('pg_lsclusters' lists those of a Debian machine), or correct "
              "host and port in 'journal'"),
    ),
    (
        r"on socket .* failed: No such file or directory",
        _text(
            "start the server, or correct host, the folder of its unix_socket_directories, and "
            "port in 'journal'"
        ),
    ),
)  # fmt: skip


def advice(said: str, attempt: Attempt) -> str:
    """Return what to type where a connection was refused with a sentence; empty where unknown."""
    for pattern, told in _ADVICE:
        if found := re.search(pattern, said):
            return told(found, attempt)
    return ""
