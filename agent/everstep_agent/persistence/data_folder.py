"""Data folder of the agent: opened, locked, and done without when its disk is dead."""

import contextlib
import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from everstep_agent.persistence.agent_database import Remembered, forgetful
from everstep_agent.persistence.disk_store import DiskStore, LostStore, StoreError
from everstep_common.clock import boot_ns

logger = logging.getLogger(__name__)

_LOAD_S = 10.0


class FolderInUseError(Exception):
    """The data folder is another agent's, or another user could be in it."""


# Owners whom no user of the node can be: root, and whoever a user namespace does not show.
_TRUSTED = (0, 65534)


def folder_problem(folder: Path) -> str:
    """Return why another user could put files into a folder, or another in its place; or ""."""
    trusted = (*_TRUSTED, os.geteuid())
    for part in (folder, *folder.absolute().parents):
        try:
            found = os.stat(part)
        except OSError:
            continue
        open_to_all = found.st_mode & stat.S_IWOTH
        if found.st_uid not in trusted or (
            open_to_all and (part == folder or not found.st_mode & stat.S_ISVTX)
        ):
            return (
                f"{part} may be written by another user: have {folder} in a folder that only "
                "the agent's user may write, and name that in the configuration"
            )
    return ""


def open_store(folder: Path, deadline_s: float) -> tuple[DiskStore | LostStore, Remembered]:
    """Return the folder's memory and what is in it, or one without a disk that says why."""
    store = DiskStore(agent_database(folder), boot_ns, int(deadline_s * 1e9))
    try:
        return store, store.load(_LOAD_S)
    except StoreError as error:
        logger.error("nothing will outlive this agent: %s", error)
        return LostStore(str(error)), forgetful()


def agent_database(folder: Path) -> Path:
    """Return where what outlives the agent is kept."""
    return folder / "agent.sqlite"


@contextlib.contextmanager
def only_agent_of(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises FolderInUseError: two agents would ruin one outbox."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # A dying disk must not keep the agent from saying so.
        logger.error("%s: %s; running without its lock", folder, error.strerror)
        yield
        return
    if problem := folder_problem(folder):
        os.close(fd)
        raise FolderInUseError(problem)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise FolderInUseError(
            f"another agent uses {folder}; stop it, or set data_folder in the configuration"
        ) from error
    try:
        yield
    finally:
        os.close(fd)
