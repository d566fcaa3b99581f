"""Rank files: the folder by which a job's ranks on this node can be read, and its variables.

It has each rank's socket and stacks, and torch's own dumps: of the job's user alone, bounded, and
gone with the launcher.
"""

import contextlib
import fcntl
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from everstep.launch.processes.sweeper import identify
from everstep.rank.interpreter import everstep_rank_opening
from everstep.rank.interpreter.everstep_rank_opening import FILES, TRACER
from everstep_common.printable import printable

_PREFIX = "everstep-ranks-"
# sockaddr_un has 108 bytes; a rank's socket is PID.sock in the folder.
_PLACE_MAX = 108 - len("/everstep-ranks-12345678/4194304.sock") - 1
# A Flight Recorder's dump of 2,000 entries is 1 to 2 MB; 64 ranks have room for all of theirs.
BYTES_MAX = 256 * 1024 * 1024
_MARKER_MAX = 4096
_LIST = "ranks.json"
_LIST_MAX = 64 * 1024
# A folder of this age is locked by its launcher, if that lives.
_NEW_S = 60.0
_INTERPRETER = str(Path(everstep_rank_opening.__file__).parent)
_ENTRIES = "2000"
# The name that is set, and an older one of the same meaning, which torch heeds only without it.
_BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_DUMP = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"
_HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
# How long a rank that could still go on is waited for: core.hang_patience_s as shipped.
_PATIENCE_S = 120


class RankFiles:
    """Folder of one launcher's ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # For as long as it is held, the folder is in use.
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    @classmethod
    def make(cls, place: str | None = None) -> "RankFiles":
        """Make one, which only this user may open, below ``place``. Raises OSError."""
        place = place or tempfile.gettempdir()
        if len(os.fsencode(place)) > _PLACE_MAX:  # a scheduler's folder for this job, say
            place = "/tmp"
        _remove_abandoned(Path(place))
        return cls(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place)))

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that ranks get besides their own."""
        return rank_variables(environ, self.folder, os.getpid())

    def list_ranks(self, job: str, world_size: int, pids: Mapping[int, int]) -> None:
        """Write down which process is which rank: one that was a standby does not show it."""
        listed = {"job": job, "world_size": world_size, "pids": dict(pids)}
        with contextlib.suppress(OSError):  # a full disk: the ranks' own variables tell
            draft = self.folder / f"{_LIST}.new"
            draft.write_text(json.dumps(listed), encoding="utf-8")
            draft.rename(self.folder / _LIST)

    def prune(self, bytes_max: int = BYTES_MAX) -> None:
        """Remove the largest files while all of them together are too large."""
        sizes = {path: _size(path) for path in self.folder.iterdir()}
        total = sum(sizes.values())
        for path in sorted(sizes, key=lambda one: -sizes[one]):
            if total <= bytes_max:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                total -= sizes[path]

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


@contextlib.contextmanager
def rank_files(say: Callable[[str], None]) -> Iterator[RankFiles | None]:
    """Make the folder for as long as a launcher runs; None, and a word, where there is no room."""
    try:
        files = RankFiles.make()
    except OSError as error:
        say(no_folder(error))
        yield None
        return
    try:
        yield files
    finally:
        files.remove()


def no_folder(error: OSError) -> str:
    """Return what is said where there can be no folder."""
    return f"no folder for the ranks' sockets ({error.strerror}): of one that hangs less is known"


def _remove_abandoned(folder: Path) -> None:
    """Remove what launchers of this user left that were killed."""
    for path in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                there = os.fstat(lock)
                if there.st_uid == os.geteuid() and time.time() - there.st_mtime > _NEW_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


def _size(path: Path) -> int:
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def rank_variables(environ: Mapping[str, str], folder: Path, tracer: int) -> dict[str, str]:
    """Return what to add to a rank's environment; what its user has set stays as it is. Pure."""
    added = {FILES: str(folder), TRACER: str(tracer)}
    own = environ.get("PYTHONPATH", "")
    # An empty entry would be the working folder.
    added["PYTHONPATH"] = f"{_INTERPRETER}{os.pathsep}{own}" if own else _INTERPRETER
    for names, value in (
        (_BUFFER, _ENTRIES),
        (_DUMP, f"{folder}/dump-"),
        ((_ON_TIMEOUT,), "1"),
    ):
        # Of two names for one thing, torch would believe ours rather than the user's.
        if not any(name in environ for name in names):
            added[names[0]] = value
    return added


def rank_notes(environ: Mapping[str, str]) -> list[str]:
    """Return what the user's own settings of torch mean for the search of a hung rank. Pure."""
    notes = []
    if off := next((name for name in _BUFFER if environ.get(name) == "0"), None):
        notes.append(
            f"{off}=0: torch records no collectives, so if the job hangs, only the states and"
            " stacks of its processes tell who holds it back"
        )
    told = environ.get(_HEARTBEAT, "")
    if told.isdecimal() and int(told) < _PATIENCE_S:
        notes.append(
            f"{_HEARTBEAT}={told}: torch ends a job that hangs before everstep would"
            f" (core.hang_patience_s, {_PATIENCE_S} as shipped)"
        )
    return notes


@dataclass(frozen=True, slots=True)
class Marker:
    """What the watch of torch has left word of in a rank."""

    # A signal makes the rank write its stacks.
    stacks: bool = False
    # Why it has no worker server.
    why: str = ""
    # A thread of that server; 0: not known.
    thread: int = 0


def marker(folder: Path, pid: int) -> Marker:
    """Return what a rank has left word of; nothing where it has not come so far."""
    try:
        number = os.open(folder / f"{pid}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(number, "rb") as file:
            told = json.loads(file.read(_MARKER_MAX))
        thread = told.get("thread", 0)
        known = thread if type(thread) is int and 0 < thread < 2**22 else 0
        return Marker(told["stacks"] is True, printable(str(told["why"]))[:300], known)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Marker()


@dataclass(frozen=True, slots=True)
class ListedRank:
    """A rank as its launcher has written it down."""

    rank: int
    job: str
    world_size: int


def listed_ranks(folder: Path) -> dict[int, ListedRank]:
    """Return the ranks by their processes; nothing where no launcher has listed them."""
    try:
        number = os.open(folder / _LIST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(number, "rb") as file:
            told = json.loads(file.read(_LIST_MAX))
        job, world_size = str(told["job"]), int(told["world_size"])
        pids = {int(pid): int(rank) for rank, pid in told["pids"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
    except (RecursionError, OverflowError):  # a hostile rank of the same user wrote it
        return {}
    return {pid: ListedRank(rank, job, world_size) for pid, rank in pids.items()}


def rank_process(
    pid: int, folder: Path | None, proc: Path = Path("/proc"), watched: int = 0
) -> int:
    """Return which process trains: the one that the launcher started, or one that it started.

    Of a shell script it is the oldest process of its group that has made a process group of torch,
    or else ``watched``: the one whose Python is watched, 0 where none is.
    """
    if folder is not None and (folder / f"{pid}.sock").exists():
        return pid
    paths = folder.glob("*.sock") if folder is not None else ()
    sockets = [int(path.stem) for path in paths if path.stem.isdecimal()]
    for candidates in (sockets, [watched] if watched else []):
        found = [one for one in (identify(other, str(proc)) for other in candidates) if one]
        if ours := [one for one in found if one.group == pid]:
            return min(ours, key=lambda one: one.ticks).pid
    return pid
