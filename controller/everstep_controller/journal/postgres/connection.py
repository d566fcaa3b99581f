"""Connections to PostgreSQL: how they are made, and a deadline for all that is waited for.

No setting of a server ends a commit that waits for a synchronous standby, and none a server that is
stopped: so the client has a deadline of its own, after which the connection is closed.
"""

import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from psycopg import errors
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from everstep_common.credential_file import CredentialError, CredentialFile
from everstep_controller.journal.port import JournalAccessError
from everstep_controller.journal.postgres.refusals import Attempt, advice

# A statement of ours takes milliseconds, a snapshot of the largest fleet a second; a slow disk 3 s.
_DEADLINE_S = 12.0
# The server's own limit ends before, and gives a certain answer.
_STATEMENT_SHARE = 0.8
# Per server of the address.
_CONNECT_S = 3
# An update of the lease waits for another one of a few milliseconds, or for one that hangs.
_LOCK_S = 3
# Ended by the server: none of ours has a transaction open while it waits for anything.
_IDLE_S = 5
# A peer that is gone without a word: keepalives after 5 s of silence, unanswered data for 10 s.
_OPTIONS: dict[str, str | int] = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "connect_timeout": _CONNECT_S,
    "target_session_attrs": "read-write",
}
# Parameters of an address that are secrets, besides the password.
_SECRETS = ("sslpassword", "oauth_client_secret")
# A hostaddr of the environment counts even beside a host of the address.
_SERVERS_OF_ENVIRONMENT = {"host": "PGHOST", "hostaddr": "PGHOSTADDR"}
# With these libpq speaks without encryption where it cannot have it; the last is its default.
_PERHAPS_ENCRYPTED = ("allow", "prefer", "")


@dataclass(frozen=True, slots=True)
class Place:
    """Address of a database, without its password, and the file that has this."""

    url: str
    password_file: CredentialFile | None = None
    # So long a statement is waited for.
    deadline_s: float = _DEADLINE_S

    def connect(self, application: str) -> "DeadlineConnection":
        """Return a connection to a server that takes writes. Raises JournalAccessError."""
        try:
            password = self.password_file.read() if self.password_file else None
            connection = DeadlineConnection.connect(
                make_conninfo(self.url, **_OPTIONS),
                autocommit=True,
                application_name=application,
                password=password,
            )
        except CredentialError as error:
            raise JournalAccessError(f"journal_password_file: {error}") from error
        except psycopg.Error as error:
            raise JournalAccessError(_refused_connection(self.url, error)) from error
        connection.deadline_s = self.deadline_s
        try:
            connection.execute(
                "select set_config('statement_timeout', %s, false), "
                "set_config('lock_timeout', %s, false), "
                "set_config('idle_in_transaction_session_timeout', %s, false), "
                # 'off' acknowledges what a crash of the server loses.
                "set_config('synchronous_commit', case current_setting('synchronous_commit') "
                "when 'off' then 'on' else current_setting('synchronous_commit') end, false)",
                (
                    f"{self.deadline_s * _STATEMENT_SHARE * 1000:.0f}ms",
                    f"{_LOCK_S}s",
                    f"{_IDLE_S}s",
                ),
            )
        except psycopg.Error as error:
            connection.close()
            raise JournalAccessError(_one_line(error)) from error
        return connection


class DeadlineConnection(psycopg.Connection[TupleRow]):
    """A connection that is closed when what it waits for takes too long."""

    deadline_s = _DEADLINE_S

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """See psycopg.Connection."""
        limit_s = self.deadline_s if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit_s)
        except errors.OperationalError as error:
            if timeout is None and type(error).__name__ == "_WaitTimeout":
                self.pgconn.finish()
                raise errors.OperationalError(
                    f"the database has not answered for {limit_s:g} s"
                ) from error
            raise


def note_warnings(connection: DeadlineConnection, note: Callable[[str], None]) -> None:
    """Have warnings of the server noted, whatever language it speaks."""

    def take(diagnostic: errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            note(diagnostic.message_primary or "a warning")

    connection.add_notice_handler(take)


def sentence(error: psycopg.Error) -> str:
    """Return in one line what is wrong, with the code by which it is looked up."""
    return f"{_one_line(error)} ({error.sqlstate})" if error.sqlstate else _one_line(error)


def url_problem(
    url: str, *, has_password_file: bool, environment: Mapping[str, str] | None = None
) -> str:
    """Return what is wrong with an address, and what to type; empty for nothing.

    Of the environment, which libpq reads too, that counts which says where the server is.
    """
    try:
        split = urlsplit(url)
        given = dict(parse_qsl(split.query, keep_blank_values=True))
    except ValueError as error:
        return f"is no address of a database: {error}"
    # What is secret is not repeated: the file of the configuration is everybody's to read.
    if split.password is not None or "password" in given:
        return (
            "has a password in it, which everybody reads who may read the configuration: put it "
            "into a file of the controller's user with mode 0600, name that as "
            "journal_password_file, and change the password"
        )
    if secret := next((one for one in _SECRETS if one in given), ""):
        return (
            f"has {secret} in it, which everybody reads who may read the configuration: take a key "
            "without a passphrase in a file of mode 0600, or a journal_password_file, and change "
            "what was in it"
        )
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        return f"is no address of a database: {_one_line(error)}"
    if not parts.get("dbname"):
        return "names no database; expected postgresql://USER@HOST/DATABASE"
    if has_password_file and "passfile" in parts:
        return "has a passfile, and journal_password_file is set too: remove one of them"
    around = environment or {}
    return (
        _service_problem(parts, around)
        or _port_problem(parts)
        or _encryption_problem(parts)
        or _encryption_problem(_resolved(parts, around), " (PGHOST or PGHOSTADDR says so)")
    )


def _service_problem(parts: Mapping[str, object], environment: Mapping[str, str]) -> str:
    """Return why a service of libpq's is not taken: it says in another file where and how."""
    if "service" in parts:
        return (
            f"names service {parts['service']!r}, whose file may say another server, and that "
            "nothing is encrypted: put what it says into the address, as "
            "postgresql://USER@HOST:PORT/DATABASE?sslmode=…"
        )
    if environment.get("PGSERVICE"):
        return (
            f"is not all that counts: PGSERVICE={environment['PGSERVICE']} in the environment "
            "names a file that may say another server. Put what it says into the address, and "
            "start the controller without it: 'env -u PGSERVICE …', or UnsetEnvironment=PGSERVICE "
            "in its unit"
        )
    return ""


def _port_problem(parts: Mapping[str, object]) -> str:
    for port in str(parts.get("port") or "").split(","):
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            return f"has the port {port!r}; expected a number from 1 to 65535, 5432 where none is"
    return ""


def _resolved(parts: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, object]:
    """Return the parts with the servers that libpq takes from the environment where none is."""
    found = dict(parts)
    for name, variable in _SERVERS_OF_ENVIRONMENT.items():
        if not found.get(name) and environment.get(variable):
            found[name] = environment[variable]
    return found


def _encryption_problem(parts: Mapping[str, object], said_by: str = "") -> str:
    # Where there is a hostaddr, it is connected to, and the host is only its name.
    hosts = str(parts.get("hostaddr") or parts.get("host") or "").split(",")
    distant = [host for host in hosts if not _is_here(unquote(host))]
    if not distant or str(parts.get("sslmode") or "") not in _PERHAPS_ENCRYPTED:
        return ""
    return (
        f"{distant[0]} is another machine{said_by}, to which libpq speaks without encryption where "
        "it cannot have it: add ?sslmode=verify-full&sslrootcert=/etc/everstep/database-ca.pem, "
        "or ?sslmode=disable on a network that nobody else hears"
    )


def _is_here(host: str) -> bool:
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _refused_connection(url: str, error: psycopg.Error) -> str:
    """Return why there is no connection, and what to do."""
    said = _one_line(error)
    if error.pgconn is not None and error.pgconn.needs_password:
        return (
            f"{said}: the server asks for a password; put it into a file of the controller's user "
            "with mode 0600, and name that as journal_password_file"
        )
    if error.pgconn is not None and error.pgconn.used_password:
        return (
            f"{said}: it was asked with the password of journal_password_file; where the server "
            "has another one, replace that in the file"
        )
    told = advice(said, Attempt(conninfo_to_dict(url), _process_user(), _CONNECT_S))
    return f"{said}: {told}" if told else said


def _process_user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _one_line(error: psycopg.Error) -> str:
    told = error.diag.message_primary or str(error)
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return "; ".join(lines) or type(error).__name__
