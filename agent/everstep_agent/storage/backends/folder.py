"""Folder backend: steps on a disk of the node or on a shared file system."""

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from everstep_agent.storage.backends import fence, files
from everstep_agent.storage.backends.backend import (
    BackendError,
    DecideLatest,
    ProgressCallback,
    UnusableFileError,
)
from everstep_agent.storage.backends.files import subfolder
from everstep_agent.storage.formats.records import RECORD_BYTES_MAX, StepKey
from everstep_common.mount_points import MountTables

_LATEST = "latest"
_LATEST_BYTES_MAX = 64 * 1024
_BEGINNING_BYTES_MAX = 1024 * 1024
# By its random content nodes know whether they write to one folder or to two of one name.
_IDENTITY = ".everstep-id"
_ID = re.compile(rb"[0-9a-f]{32}")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
# The user to whom a file server maps root.
_NOBODY = 65534
# How long the lock is waited for: who holds it longer is stopped or cut off, and harmless by then.
_LOCK_S = 10.0
_LOCK_POLL_S = 0.05
_WITHOUT_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_MOUNTS = MountTables()


class FolderBackend:
    """See StorageBackend. The path exists, and may be a link; nothing below it is followed.

    ``known`` is the id of the folder that the job has seen before; "" where it has seen none.
    """

    def __init__(
        self,
        path: str,
        job: str,
        lock_s: float = _LOCK_S,
        *,
        known: str = "",
        mounts: MountTables = _MOUNTS,
    ) -> None:
        if not _JOB_NAME.fullmatch(job):
            raise BackendError(f"job {job!r} cannot name a folder")
        if not os.path.isabs(path) or "\0" in path:
            raise BackendError(f"{path!r} is no absolute path")
        self._path, self._job, self._lock_s = path, job, lock_s
        self._known, self._mounts, self._checked = known, mounts, False

    def write_file(
        self,
        key: StepKey,
        name: str,
        pieces: Iterable[memoryview],
        size_bytes: int,
        on_progress: ProgressCallback,
    ) -> None:
        """See StorageBackend."""
        with self._step(key, create=True) as folder:
            for left in list(files.leftover_files(folder, name)):
                files.remove_if_present(folder, left)
            unnamed = files.temporary_name(name)
            files.write_new(folder, unnamed, pieces, size_bytes, on_progress)
            files.rename_durably(folder, unnamed, name)

    def write_small(self, key: StepKey, name: str, content: bytes) -> None:
        """See StorageBackend."""
        self.write_file(key, name, [memoryview(content)], len(content), lambda count: None)

    def read_small(self, key: StepKey, name: str) -> bytes | None:
        """See StorageBackend."""
        try:
            with self._step(key) as folder:
                return files.read_small(folder, name, RECORD_BYTES_MAX)
        except FileNotFoundError:
            return None

    def file_size(self, key: StepKey, name: str) -> int | None:
        """See StorageBackend."""
        try:
            with (
                self._step(key) as folder,
                files.closing(files.open_file(folder, name)) as fd,
            ):
                return os.fstat(fd).st_size
        except FileNotFoundError:
            return None

    @contextmanager
    def open_file(self, key: StepKey, name: str) -> Iterator[int]:
        """Open a regular file for a while. Raises OSError and BackendError."""
        with self._step(key) as folder, files.closing(files.open_file(folder, name)) as fd:
            yield fd

    def read_into(
        self,
        key: StepKey,
        name: str,
        begins: int,
        buffers: Iterable[memoryview],
        on_progress: ProgressCallback,
    ) -> None:
        """See StorageBackend."""
        with (
            self._step(key) as folder,
            files.closing(files.open_file(folder, name)) as fd,
        ):
            at = begins
            for buffer in buffers:
                filled = 0
                while filled < len(buffer):
                    count = os.preadv(fd, [buffer[filled : filled + (8 << 20)]], at)
                    if count == 0:
                        raise BackendError(f"{name} is shorter than it was written")
                    filled, at = filled + count, at + count
                    on_progress(count)

    def identity(self) -> str:
        """See StorageBackend. Whoever is first makes the id; the file system decides who that is.

        A node that does not see yet what another has made learns nothing, and asks again.
        """
        with self._root(create=True) as root:
            found = files.read_small(root, _IDENTITY, _LATEST_BYTES_MAX)
            if found is None:
                files.make_once(root, _IDENTITY, secrets.token_hex(16).encode())
                found = files.read_small(root, _IDENTITY, _LATEST_BYTES_MAX) or b""
        return found.decode() if _ID.fullmatch(found) else ""

    def list_steps(self) -> list[StepKey]:
        """See StorageBackend."""
        found = []
        try:
            with self._root() as root:
                for generation in fence.list_generations(root):
                    with subfolder(root, f"gen-{generation}") as folder:
                        found += [StepKey(generation, step) for step in fence.list_steps(folder)]
        except FileNotFoundError:
            return []
        return sorted(found)

    def list_generations(self) -> list[int]:
        """See StorageBackend."""
        with self._root(create=True) as root:
            return fence.list_generations(root)

    def read_beginning(self, generation: int) -> bytes | None:
        """See StorageBackend."""
        try:
            with self._root() as root, subfolder(root, f"gen-{generation}") as folder:
                return files.read_small(folder, fence.BEGINNING, _BEGINNING_BYTES_MAX)
        except FileNotFoundError:
            return None

    def write_beginning(self, generation: int, content: bytes, *, replaces: bool) -> None:
        """See StorageBackend."""
        with (
            self._root(create=True) as root,
            subfolder(root, f"gen-{generation}", create=True) as folder,
        ):
            if replaces:
                files.replace_small(folder, fence.BEGINNING, content)
                return
            try:
                files.make_once(folder, fence.BEGINNING, content)
            except OSError as error:
                if error.errno not in _WITHOUT_LINKS:
                    raise
                files.replace_small(folder, fence.BEGINNING, content)

    def remove_step(self, key: StepKey, generation: int) -> None:
        """See StorageBackend.

        The step goes at once and whole, into a bin that a newer generation takes away first: then
        there is nowhere to move it to, and it stays.
        """
        with self._root() as root, subfolder(root, f"gen-{generation}", create=True) as mine:
            try:
                with (
                    subfolder(root, f"gen-{key.generation}") as home,
                    subfolder(mine, fence.TRASH_FOLDER, create=True) as bin_folder,
                ):
                    fence.refuse_overtaken(root, generation)
                    _throw_away(home, f"step-{key.step}", bin_folder)
            except FileNotFoundError as error:
                raise fence.fenced_off_error(generation) from error
            finally:
                fence.empty_trash(mine)

    def read_latest(self) -> bytes | None:
        """See StorageBackend."""
        try:
            with self._root() as root:
                return files.read_small(root, _LATEST, _LATEST_BYTES_MAX)
        except FileNotFoundError:
            return None

    def move_latest(self, generation: int, decide: DecideLatest) -> None:
        """See StorageBackend.

        Safe without the lock, which only keeps the waiting short: an older one that looked before
        the folder of this generation was made finds its unnamed file removed, and cannot rename it;
        one that looks later sees the folder.
        """
        with self._root(create=True) as root, self._locked(root):
            with subfolder(root, f"gen-{generation}", create=True):
                pass
            fence.revoke_older(root, generation)
            content = decide(_latest_of(root), fence.newest_generation(root))
            if content is not None:
                self._replace_latest(root, generation, content)

    def _replace_latest(self, root: int, generation: int, content: bytes) -> None:
        unnamed = files.temporary_name(f"latest-gen-{generation}")
        files.write_new(root, unnamed, [memoryview(content)], len(content), lambda count: None)
        try:
            fence.refuse_overtaken(root, generation)
            files.rename_durably(root, unnamed, _LATEST)
        except FileNotFoundError as error:
            raise fence.fenced_off_error(generation) from error
        except BackendError:
            files.remove_if_present(root, unnamed)
            raise

    @contextmanager
    def _locked(self, root: int) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with files.closing(os.open(".lock", flags, 0o666, dir_fd=root)) as lock:
            end = time.monotonic() + self._lock_s
            while not _lock(lock) and time.monotonic() < end:
                time.sleep(_LOCK_POLL_S)
            yield

    @contextmanager
    def _root(self, *, create: bool = False) -> Iterator[int]:
        try:
            base = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            # Not created here: that would hide that a file system is not mounted, and fill another.
            raise BackendError(
                f"{self._path} is not there for this node's agent: mount it there, or make it"
            ) from error
        with files.closing(base), self._job_folder(base, create=create) as root:
            if problem := _owner_problem(os.fstat(base), os.fstat(root)):
                raise BackendError(f"{self._job} in {self._path} {problem}")
            yield root

    @contextmanager
    def _job_folder(self, base: int, *, create: bool) -> Iterator[int]:
        """Open the job's folder, the one that it has seen before where it has seen one."""
        if not self._known:
            self._refuse_unmounted()
            with subfolder(base, self._job, create=create) as root:
                yield root
            return
        try:
            root = files.open_folder(base, self._job, create=False)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                raise
            raise self._another_folder("it is gone") from error
        with files.closing(root):
            if not self._checked:
                found = files.read_small(root, _IDENTITY, _LATEST_BYTES_MAX)
                if found != self._known.encode():
                    raise self._another_folder(
                        "its .everstep-id is " + ("gone" if found is None else "another")
                    )
                self._checked = True
            yield root

    def _refuse_unmounted(self) -> None:
        if self._checked:
            return
        if point := self._mounts.unmounted_point(self._path):
            raise BackendError(
                f"{self._path} is on no mounted file system: {point} is a mount point, and is not"
                " mounted for this node's agent; mount it"
            )
        self._checked = True

    def _another_folder(self, what: str) -> BackendError:
        return BackendError(
            f"{self._path}/{self._job} is not the folder that the job has used: {what}. Mount"
            " its file system again; if it was emptied on purpose, start the job anew"
        )

    @contextmanager
    def _step(self, key: StepKey, *, create: bool = False) -> Iterator[int]:
        with (
            self._root(create=create) as root,
            subfolder(root, f"gen-{key.generation}", create=create) as generation,
            subfolder(generation, f"step-{key.step}", create=create) as folder,
        ):
            yield folder


def _owner_problem(base: os.stat_result, root: os.stat_result) -> str:
    """Return why what is in a job's folder may be another user's; "" when it is not.

    Where everybody may make folders, another user may have made the one of this name before the
    job did, with a state in it that the job would go on from.
    """
    user = os.geteuid()
    trusted = (user, 0) if user else (0, _NOBODY)
    if not base.st_mode & stat.S_IWOTH or root.st_uid in trusted:
        return ""
    return (
        f"belongs to another user (uid {root.st_uid}), and everybody may write there: choose "
        "another name with --job, or a folder that only you may write"
    )


def _latest_of(root: int) -> bytes | None:
    """Return the content of ``latest``; what is no file of ours there is replaced, as none."""
    try:
        return files.read_small(root, _LATEST, _LATEST_BYTES_MAX)
    except UnusableFileError:
        return None


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: the fence does not need them
        return True
    return True


def _throw_away(home: int, name: str, bin_folder: int) -> None:
    with subfolder(home, name) as folder:
        if not all(map(fence.OWN_FILES.fullmatch, os.listdir(folder))):
            return
    os.rename(name, secrets.token_hex(8), src_dir_fd=home, dst_dir_fd=bin_folder)
    os.fsync(home)
