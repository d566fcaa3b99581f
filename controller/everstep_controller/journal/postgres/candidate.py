"""Candidate for a journal in PostgreSQL: looks at the lease, and succeeds a holder that is gone."""

from collections.abc import Callable
from contextlib import suppress

import psycopg

from everstep_controller.journal.lease import Look, Observation, observe
from everstep_controller.journal.port import (
    JournalAccessError,
    JournalLockedError,
    WriterSeen,
)
from everstep_controller.journal.postgres.connection import DeadlineConnection, sentence
from everstep_controller.journal.postgres.lease_session import (
    CHANNEL,
    LeaseSession,
    LookedAt,
    Surroundings,
)
from everstep_controller.journal.postgres.schema import WITH_STANDBYS, known_version, migrate

_NOBODY = WriterSeen(term=0, writer="", told="", head=0, still_s=0.0, is_gone=True)


class PostgresCandidate:
    """See JournalCandidate."""

    def __init__(
        self, session: LeaseSession, around: Surroundings, taken: Callable[[], None]
    ) -> None:
        self._session = session
        self._around = around
        self._taken = taken
        self._observation: Observation | None = None
        # The newest look; None where the database has no journal that a standby can look at.
        self._looked: LookedAt | None = None
        self._listening: DeadlineConnection | None = None

    def look(self, told: str) -> WriterSeen:
        """See JournalCandidate."""
        self._session.told = told
        try:
            return self._look()
        except (psycopg.Error, JournalAccessError) as error:
            self._session.disconnect()
            self._note(None)
            if isinstance(error, JournalAccessError):
                raise
            raise JournalAccessError(sentence(error)) from error

    def _look(self) -> WriterSeen:
        if self._looked is None and known_version(self._session.connection) < WITH_STANDBYS:
            return _NOBODY
        if self._observation is None:
            self._observation = self._session.before_first_look()
        self._looked = looked = self._session.look()
        seen = looked.seen()
        observation = self._note(looked)
        return WriterSeen(
            term=seen.term,
            writer=str(seen.holder or ""),
            told=looked.told if seen.holder is not None else "",
            head=looked.row.chain.seq,
            still_s=observation.still_ns() / 1e9,
            is_gone=observation.is_gone or self._session.has_ended_here(seen),
        )

    def _note(self, looked: LookedAt | None) -> Observation:
        seen = looked.seen() if looked is not None else None
        self._observation = observe(self._observation, Look(self._around.monotonic_ns(), seen))
        return self._observation

    def wait(self, timeout_s: float) -> None:
        """See JournalCandidate."""
        try:
            connection = self._session.connection
            if connection is not self._listening:
                connection.execute(f"listen {CHANNEL}".encode())
                self._listening = connection
            for _ in connection.notifies(timeout=timeout_s, stop_after=1):
                pass
        except (psycopg.Error, JournalAccessError):
            # The next look says what is wrong.
            self._session.disconnect()
            self._around.sleep_s(timeout_s)

    def take(self, told: str) -> bool:
        """See JournalCandidate."""
        self._session.told = told
        looked, self._looked = self._looked, None
        try:
            if looked is None:
                try:
                    self._session.take()
                except JournalLockedError:
                    # Of two that find no journal, the other one has made it.
                    return False
            else:
                migrate(self._session.connection)
                if not self._session.take_from(looked):
                    return False
            with suppress(psycopg.Error):
                self._session.connection.execute(f"unlisten {CHANNEL}".encode())
        except psycopg.Error as error:
            raise JournalAccessError(sentence(error)) from error
        self._taken()
        return True
