"""Journal backends: the choice of what keeps a journal, made here and nowhere else."""

import importlib.util
from pathlib import Path

from everstep_common.credential_file import CredentialFile
from everstep_common.extras import install_line
from everstep_controller.journal.address import is_url
from everstep_controller.journal.port import JournalBackend, JournalRefusedError
from everstep_controller.journal.sqlite.journal import SqliteBackend


def journal_at(journal: str, password_file: CredentialFile | None = None) -> JournalBackend:
    """Return the place of a journal. Raises JournalRefusedError without what it needs."""
    if not is_url(journal):
        return SqliteBackend(Path(journal))
    if importlib.util.find_spec("psycopg") is None:
        raise JournalRefusedError(f"it needs a client of PostgreSQL: {install_line('postgres')}")
    # Its libraries take 0.1 s to import, which no other start need wait for.
    from everstep_controller.journal.postgres.connection import Place
    from everstep_controller.journal.postgres.journal import PostgresBackend
    from everstep_controller.journal.postgres.surroundings import surroundings

    return PostgresBackend(Place(journal, password_file), surroundings())


def journal_copy_at(file: Path) -> JournalBackend:
    """Return the place of a copy in a file that is read once: nothing is left beside it."""
    return SqliteBackend(file, is_copy=True)
