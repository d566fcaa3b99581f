"""Backup: a verified copy of journal and cluster file, also while their controller runs."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from pwd import getpwuid

from everstep_controller.config import ControllerConfig
from everstep_controller.journal.port import DamagedJournalError
from everstep_controller.journal.sqlite.journal import SqliteJournal

# Of the copy's name: the cluster file that belongs to it.
_CLUSTER = ".cluster"


class BackupError(Exception):
    """There is no backup; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy that was read again and is as it was written."""

    journal: Path
    # None: there is no cluster file to copy.
    cluster_file: Path | None
    events: int
    size_bytes: int


def back_up(config: ControllerConfig, config_path: Path | None, target: Path) -> Backup:
    """Copy journal and cluster file; an older backup at that place stays until the new one is read.

    Raises BackupError.
    """
    _check_source(config.journal)
    _check_target(target)
    unverified = target.with_name(f"{target.name}.unverified")
    try:
        _copy(config.journal, unverified)
        events = _verify(unverified)
        cluster = _copy_cluster(config.cluster_file_beside(config_path), target)
        os.replace(unverified, target)
        _sync(target.parent)
    except DamagedJournalError as error:
        raise BackupError(
            f"{config.journal} is damaged, so that its copy is no backup: {error}; keep the "
            "backups that there are, and see what 'everstep-controller' says at its next start"
        ) from error
    except (OSError, sqlite3.Error) as error:
        raise BackupError(f"{config.journal} cannot be copied to {target}: {error}") from error
    finally:
        unverified.unlink(missing_ok=True)
    return Backup(target, cluster, events, target.stat().st_size)


def report(backup: Backup) -> Iterator[str]:
    """Yield lines for people."""
    size_mb = backup.size_bytes / 1e6
    yield f"{backup.journal}: {size_mb:.1f} MB, up to event {backup.events}, read again and whole"
    if backup.cluster_file is None:
        yield "there is no cluster file yet: run this again when the controller has started"
    else:
        yield f"{backup.cluster_file}: the cluster file of it"
    yield "configuration, certificates and keys are not in it: keep them where you keep secrets"


def _check_source(journal: Path) -> None:
    """Refuse to leave files beside the journal that its controller may not open."""
    try:
        owner = journal.stat().st_uid
    except OSError as error:
        raise BackupError(
            f"{journal}: {error.strerror}; name the configuration with --config"
        ) from error
    if owner != os.geteuid():
        name = _name_of(owner)
        raise BackupError(
            f"{journal} belongs to {name}: run this as that user, with 'runuser -u {name} -- "
            "everstep-controller backup FILE', and a FILE that it may write"
        )


def _check_target(target: Path) -> None:
    """Refuse a name beside which SQLite finds the log of another file: it would mix that in."""
    beside = [target.with_name(f"{target.name}-{end}") for end in ("wal", "shm", "journal")]
    left = [str(path) for path in beside if path.exists()]
    if left:
        raise BackupError(
            f"{' and '.join(left)} {'is' if len(left) == 1 else 'are'} there, of a database that "
            f"has or had the name {target}: SQLite would mix that into the copy; choose another "
            f"name, or where no process uses it: rm {' '.join(left)}"
        )


def _name_of(uid: int) -> str:
    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _copy(journal: Path, to: Path) -> None:
    to.unlink(missing_ok=True)
    os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    source = f"{journal.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(source, uri=True)) as told, closing(sqlite3.connect(to)) as copy:
        told.backup(copy)
        # One file, without a log beside it: it is to be carried about.
        copy.execute("PRAGMA journal_mode = DELETE")


def _verify(copy: Path) -> int:
    """Read all of a copy; return its newest event. Raises DamagedJournalError."""
    with closing(SqliteJournal(copy, read_only=True)) as store:
        store.verify(whole=True)
        return store.last()[0]


def _copy_cluster(cluster_file: Path, target: Path) -> Path | None:
    try:
        text = cluster_file.read_bytes()
    except FileNotFoundError:
        return None
    to = target.with_name(target.name + _CLUSTER)
    fd = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return to


def _sync(folder: Path) -> None:
    """Have the new name on the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
