"""Copy of a journal's file: what forbids one, and how it is made of a file that is written."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from pwd import getpwuid


def copy_problem(journal: Path, target: Path) -> str:
    """Return why a journal may not be copied to a file, and what to do; empty where it may."""
    return _source_problem(journal) or target_problem(target)


def new_file(target: Path) -> None:
    """Make a file for a copy, in the place of one that was left over. Raises OSError."""
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def end_log(target: Path) -> None:
    """Have a copy be one file, without a log beside it: it is to be carried about."""
    with closing(sqlite3.connect(target)) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")


def copy_file(journal: Path, to: Path) -> None:
    """Copy the database, also while it is written. Raises OSError, sqlite3.Error."""
    new_file(to)
    source = f"{journal.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(source, uri=True)) as told, closing(sqlite3.connect(to)) as copy:
        told.backup(copy)
    end_log(to)


@contextmanager
def leaving_no_log(journal: Path) -> Iterator[None]:
    """Remove the log that reading a file makes beside it: empty, and where there was none."""
    log, index = (journal.with_name(f"{journal.name}-{end}") for end in ("wal", "shm"))
    was_there = log.exists() or index.exists()
    try:
        yield
    finally:
        if not was_there and log.exists() and log.stat().st_size == 0:
            log.unlink()
            index.unlink(missing_ok=True)


def _source_problem(journal: Path) -> str:
    """Return why a copy would leave files beside the journal that its controller may not open."""
    try:
        owner = journal.stat().st_uid
    except OSError as error:
        return f"{journal}: {error.strerror}; name the configuration with --config"
    if owner == os.geteuid():
        return ""
    name = _name_of(owner)
    return (
        f"{journal} belongs to {name}: run this as that user, with 'runuser -u {name} -- "
        "everstep-controller backup FILE', and a FILE that it may write"
    )


def target_problem(target: Path) -> str:
    """Return why beside a name SQLite would find the log of another file, and mix that in."""
    beside = [target.with_name(f"{target.name}-{end}") for end in ("wal", "shm", "journal")]
    left = [str(path) for path in beside if path.exists()]
    if not left:
        return ""
    return (
        f"{' and '.join(left)} {'is' if len(left) == 1 else 'are'} there, of a database that "
        f"has or had the name {target}: SQLite would mix that into the copy; choose another "
        f"name, or where no process uses it: rm {' '.join(left)}"
    )


def _name_of(uid: int) -> str:
    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
