"""Database rows for the next agent process; a row that cannot be written stops no training."""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from everstep_common.log_limit import once_a_minute

logger = logging.getLogger(__name__)


class RuntimeDatabase(sqlite3.Connection):
    """Connection that knows why its last change was not made; "" where it was."""

    trouble = ""


def write_row(database: sqlite3.Connection, statement: str, values: Sequence[object]) -> None:
    """Change a row, or say that it stays as it was: the folder is full, or its disk broken.

    An agent that starts again then hashes what it finds; memory that is not in a row it gives up.
    """
    _write(database, lambda: database.execute(statement, values))


def write_rows(
    database: sqlite3.Connection, changes: Iterable[tuple[str, Sequence[object]]]
) -> None:
    """Change rows as `write_row` does: all of them, or none where the agent is killed meanwhile."""
    _write(database, lambda: _change_all(database, changes))


def _change_all(
    database: sqlite3.Connection, changes: Iterable[tuple[str, Sequence[object]]]
) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        for statement, values in changes:
            database.execute(statement, values)
        database.execute("COMMIT")
    except sqlite3.Error:
        if database.in_transaction:  # SQLite has not given up all of it itself
            database.execute("ROLLBACK")
        raise


def _write(database: sqlite3.Connection, change: Callable[[], object]) -> None:
    trouble = ""
    try:
        change()
    except sqlite3.Error as error:
        trouble = str(error)
        logger.warning(
            "what the next agent must know of jobs cannot be written: %s",
            error,
            extra=once_a_minute("the runtime folder", trouble),
        )
    if isinstance(database, RuntimeDatabase):
        database.trouble = trouble
