"""Journal backends: the choice of what keeps a journal, made here and nowhere else."""

from pathlib import Path

from everstep_controller.journal.port import JournalBackend
from everstep_controller.journal.sqlite.journal import SqliteBackend


def journal_at(path: Path) -> JournalBackend:
    """Return the place of a journal."""
    return SqliteBackend(path)
