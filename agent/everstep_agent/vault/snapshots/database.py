"""Database rows for the next agent process; a row that cannot be written stops no training."""

import logging
import sqlite3
from collections.abc import Sequence

from everstep_common.log_limit import once_a_minute

logger = logging.getLogger(__name__)


class RuntimeDatabase(sqlite3.Connection):
    """Connection that knows why its last change was not made; "" where it was."""

    trouble = ""


def write_row(database: sqlite3.Connection, statement: str, values: Sequence[object]) -> None:
    """Change a row, or say that it stays as it was: the folder is full, or its disk broken.

    An agent that starts again then hashes what it finds; memory that is not in a row it gives up.
    """
    trouble = ""
    try:
        database.execute(statement, values)
    except sqlite3.Error as error:
        trouble = str(error)
        logger.warning(
            "what the next agent must know of jobs cannot be written: %s",
            error,
            extra=once_a_minute("the runtime folder", trouble),
        )
    if isinstance(database, RuntimeDatabase):
        database.trouble = trouble
