"""Backup: a verified copy of journal and cluster file, also while their controller runs.

The copy is a file, whatever keeps the journal; ``import_journal`` brings one into another journal.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from everstep_controller.assembly.journal_backends import journal_at, journal_copy_at
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.journal.copy import copy_journal
from everstep_controller.journal.port import (
    DamagedJournalError,
    JournalAccessError,
    JournalLockedError,
    JournalLostError,
    JournalRefusedError,
    JournalUnknownError,
    JournalWriteError,
)

# Of the copy's name: the cluster file that belongs to it.
_CLUSTER = ".cluster"


_REFUSALS = (
    DamagedJournalError,
    JournalAccessError,
    JournalLockedError,
    JournalLostError,
    JournalRefusedError,
    JournalUnknownError,
    JournalWriteError,
)


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
    backend = journal_at(config.journal, config.journal_password_file)
    if problem := backend.copy_problem(target):
        raise BackupError(problem)
    unverified = target.with_name(f"{target.name}.unverified")
    try:
        with backend.errors():
            events = backend.copy_to(unverified)
        cluster = _copy_cluster(config.cluster_file_beside(config_path), target)
        os.replace(unverified, target)
        _sync(target.parent)
    except DamagedJournalError as error:
        raise BackupError(
            f"{config.journal} is damaged, so that its copy is no backup: {error}; keep the "
            "backups that there are, and see what 'everstep-controller' says at its next start"
        ) from error
    except (OSError, JournalAccessError) as error:
        raise BackupError(f"{config.journal} cannot be copied to {target}: {error}") from error
    finally:
        unverified.unlink(missing_ok=True)
    return Backup(target, cluster, events, target.stat().st_size)


def export_journal(config: ControllerConfig, config_path: Path | None, target: Path) -> Backup:
    """Copy a journal whose controller is stopped to a new file. Raises BackupError."""
    taken = [one for one in (target, _cluster_beside(target)) if one.exists()]
    if taken:
        raise BackupError(
            f"{taken[0]} is there already, and may be a journal that somebody needs: name another "
            f"FILE, or move it away, 'mv {taken[0]} {taken[0]}.old'"
        )
    backend = journal_at(config.journal, config.journal_password_file)
    try:
        with backend.errors(), backend.lock():
            return back_up(config, config_path, target)
    except (OSError, *_REFUSALS) as error:
        raise BackupError(f"{config.journal} cannot be exported: {error}") from error


def import_journal(config: ControllerConfig, file: Path) -> int:
    """Copy a file into the configured journal, which is new; return its newest event. BackupError.

    Neither has a controller that runs.
    """
    if not file.exists():
        raise BackupError(f"{file}: no such journal")
    source = journal_copy_at(file)
    target = journal_at(config.journal, config.journal_password_file)
    try:
        with source.errors(), source.lock():
            source.verify()
            with (
                closing(source.open_reader()) as told,
                target.errors(),
                target.lock(),
                closing(target.open_writer()) as written,
            ):
                return copy_journal(told, written)
    except (OSError, *_REFUSALS) as error:
        raise BackupError(f"{file} cannot be imported into {config.journal}: {error}") from error


def report(backup: Backup) -> Iterator[str]:
    """Yield lines for people."""
    size_mb = backup.size_bytes / 1e6
    yield f"{backup.journal}: {size_mb:.1f} MB, up to event {backup.events}, read again and whole"
    if backup.cluster_file is None:
        yield "there is no cluster file yet: run this again when the controller has started"
    else:
        yield f"{backup.cluster_file}: the cluster file of it"
    yield "configuration, certificates and keys are not in it: keep them where you keep secrets"


def _cluster_beside(target: Path) -> Path:
    return target.with_name(target.name + _CLUSTER)


def _copy_cluster(cluster_file: Path, target: Path) -> Path | None:
    try:
        text = cluster_file.read_bytes()
    except FileNotFoundError:
        return None
    to = _cluster_beside(target)
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
