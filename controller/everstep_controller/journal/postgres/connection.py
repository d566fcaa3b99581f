"""Connections to PostgreSQL: how they are made, and a deadline for all that is waited for.

No setting of a server ends a commit that waits for a synchronous standby, and none a server that is
stopped: so the client has a deadline of its own, after which the connection is closed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from psycopg import errors
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from everstep_common.credential_file import CredentialError, CredentialFile
from everstep_controller.journal.port import JournalAccessError

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
            raise JournalAccessError(_one_line(error)) from error
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


def url_problem(url: str, *, has_password_file: bool) -> str:
    """Return what is wrong with an address, and what to type; empty for nothing."""
    try:
        split = urlsplit(url)
        given = dict(parse_qsl(split.query, keep_blank_values=True))
    except ValueError as error:
        return f"is no address of a database: {error}"
    if split.password is not None or "password" in given:
        # It is not repeated: the file of the configuration is everybody's to read.
        return (
            "has a password in it, which everybody reads who may read the configuration: put it "
            "into a file of the controller's user with mode 0600, name that as "
            "journal_password_file, and change the password"
        )
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        return f"is no address of a database: {_one_line(error)}"
    if not parts.get("dbname"):
        return "names no database; expected postgresql://USER@HOST/DATABASE"
    distant = [host for host in str(parts.get("host") or "").split(",") if not _is_here(host)]
    if distant and "sslmode" not in parts:
        return (
            f"{distant[0]} is another machine, to which libpq speaks without encryption where it "
            "cannot have it: add ?sslmode=verify-full&sslrootcert=/etc/everstep/database-ca.pem, "
            "or ?sslmode=disable on a network that nobody else hears"
        )
    if has_password_file and "passfile" in parts:
        return "has a passfile, and journal_password_file is set too: remove one of them"
    return ""


def _is_here(host: str) -> bool:
    name = unquote(host)
    return name in ("", "localhost", "::1") or name.startswith(("/", "@", "127."))


def _one_line(error: psycopg.Error) -> str:
    told = error.diag.message_primary or str(error)
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return "; ".join(lines) or type(error).__name__
