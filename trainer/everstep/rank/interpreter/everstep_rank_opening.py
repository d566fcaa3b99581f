"""Rank opening: makes a rank readable from outside when it makes its first process group.

From then on the rank answers on a Unix socket without its main thread and without the GIL (torch's
worker server), and writes its Python stacks to a file when a thread of that server gets a signal.
Run in the rank by its own interpreter, from 3.8 on, with the standard library only.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing's, whose import takes milliseconds
    from collections.abc import Callable
    from types import ModuleType
    from typing import IO

# The folder of this job's ranks, and the launcher: whose child reads them.
FILES = "EVERSTEP_RANK_FILES"
TRACER = "EVERSTEP_RANK_TRACER"
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
# The names that older versions of torch know; newer ones warn of them.
_OLDER_NAMES = (
    ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
    ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"),
)
_NEW_NAMES_SINCE = (2, 10)
# What is set here in a rank's environment, and says nothing of the script.
SET_HERE = frozenset((_PIPE, *(older for older, _ in _OLDER_NAMES)))
_PR_SET_PTRACER = 0x59616D61
# A real-time signal that no library is known to use: SIGRTMAX - 3.
STACKS_SIGNAL = 61
# The server's pool has a thread for each processor but one, and at least 8; one more listens.
_POOL_MIN = 8
# The servers of a node's ranks together take no more of a limit on processes than this share.
_SHARE_OF_LIMIT = 0.25
_NOISE = b"[c10d] Server listening to UNIX"


def wrap_group_making(module: "ModuleType", watch: "Callable[[ModuleType], None]") -> None:
    """Have the function that makes process groups make this process readable first.

    ``watch`` starts the watch of what torch's module for process groups records.
    """
    import functools

    make: Callable[..., object] = module.init_process_group

    @functools.wraps(make)
    def init_process_group(*arguments: object, **named: object) -> object:
        _readable.ensure(watch)
        return make(*arguments, **named)

    vars(module)["init_process_group"] = init_process_group


class _Readable:
    """What keeps this process readable; a forked child that makes a group has its own."""

    def __init__(self) -> None:
        self._pid = 0
        # Never closed: a destructor would print, and wait for its threads, when the rank ends.
        self._server: object = None
        self._stacks: IO[bytes] | None = None

    def ensure(self, watch: "Callable[[ModuleType], None]") -> None:
        """Become readable, once; nothing that is in the way of it is the script's business."""
        folder = os.environ.get(FILES)
        if not folder or self._pid == os.getpid():
            return
        self._pid = os.getpid()
        try:
            self._open(folder)
        except Exception as error:  # noqa: BLE001 - torch's errors are of every type
            _tell(os.path.join(folder, str(self._pid)), stacks=False, why=repr(error)[:200])
        try:
            from torch._C import _distributed_c10d

            watch(_distributed_c10d)
        except Exception:  # noqa: BLE001 - steps tell where the recorder cannot
            return

    def _open(self, folder: str) -> None:
        if not os.path.isdir(folder):  # a container of the rank's own does not have it
            return
        stem = os.path.join(folder, str(self._pid))
        _allow_tracer()
        # Not set by the launcher: where NCCL's process group cannot make the pipe, it aborts.
        os.environ.setdefault(_PIPE, os.path.join(folder, "pipe-"))
        _name_as_older_versions()
        why = _no_room()
        server_type, thread = None, 0
        if not why:
            from torch._C import _distributed_c10d

            server_type = getattr(_distributed_c10d, "_WorkerServer", None)
            why = "" if server_type else "this torch has no worker server"
        if server_type is not None:
            before = _threads()
            self._server = _quietly(server_type, stem + ".sock")
            _keep_for_ever(self._server)
            _unlink_at_exit(stem)
            # Older versions give the threads of their server no name.
            thread = max(_threads() - before, default=0)
            self._stacks = _stacks_file(stem + ".stacks")
        _tell(stem, stacks=self._stacks is not None, why=why, thread=thread)


_readable = _Readable()


def _threads() -> "set[int]":
    """Return the threads of this process, by the kernel's numbers."""
    return {int(name) for name in os.listdir("/proc/self/task")}


def _allow_tracer() -> None:
    """Let the launcher and its children read this process, where Yama allows that to nobody."""
    import ctypes

    tracer = os.environ.get(TRACER, "")
    if tracer.isdigit():
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, int(tracer), 0, 0, 0)


def _name_as_older_versions() -> None:
    numbers = sys.modules["torch"].__version__.split(".")[:2]
    if tuple(map(int, numbers)) < _NEW_NAMES_SINCE:
        for older, newer in _OLDER_NAMES:
            if newer in os.environ:
                os.environ.setdefault(older, os.environ[newer])


def _no_room() -> str:
    """Return why the threads of the servers would be too many here; "": they are not."""
    count = (max(_POOL_MIN, (os.cpu_count() or 1) - 1) + 1) * _ranks_here()
    limit, name = min(_limits(), default=(sys.maxsize, ""))
    if count <= limit * _SHARE_OF_LIMIT:
        return ""
    return f"the worker servers of this node would take {count} threads of {limit} ({name})"


def _ranks_here() -> int:
    told = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(told) if told.isdigit() else 1


def _limits() -> "list[tuple[int, str]]":
    """Return the limits on the number of threads, and the settings that are these limits."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    found = [] if soft == resource.RLIM_INFINITY or os.getuid() == 0 else [(soft, "ulimit -u")]
    try:
        with open("/proc/self/cgroup") as lines:
            group = next((line[3:].strip() for line in lines if line.startswith("0::")), "")
    except OSError:
        return found
    while group:
        path = "/sys/fs/cgroup" + group.rstrip("/") + "/pids.max"
        group = "" if group == "/" else os.path.dirname(group)
        try:
            with open(path) as file:
                told = file.read().strip()
        except OSError:
            continue
        if told.isdigit():
            found.append((int(told), path))
    return found


def _quietly(server_type: "Callable[[str], object]", path: str) -> object:
    """Open the server without the warning that torch prints about it."""
    import contextlib

    with contextlib.suppress(FileNotFoundError):  # of this process before it began anew
        os.unlink(path)
    said = os.memfd_create("everstep-said", os.MFD_CLOEXEC)
    kept = os.dup(2)
    os.dup2(said, 2)
    try:
        return server_type(path)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        # What other threads wrote meanwhile is theirs.
        lines = os.pread(said, 1 << 20, 0).splitlines(True)
        os.close(said)
        os.write(2, b"".join(line for line in lines if _NOISE not in line))


def _keep_for_ever(server: object) -> None:
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))


def _unlink_at_exit(stem: str) -> None:
    """Have nobody ask the server while the interpreter ends.

    A thread of it that waits for the GIL then is ended by the interpreter, within C++: an abort.
    """
    import atexit

    pid = os.getpid()

    def unlink() -> None:
        if os.getpid() == pid:  # in a forked child it is not its own
            _tell(stem, stacks=False, why="it is ending")
            os.unlink(stem + ".sock")

    atexit.register(unlink)


def _stacks_file(path: str) -> "IO[bytes] | None":
    """Have a signal write the stacks of all threads to a file; None where a script has taken it."""
    import faulthandler
    import signal

    if signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
        return None
    file = open(path, "ab")  # noqa: SIM115 - for as long as the process lives
    faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
    return file


def _tell(stem: str, *, stacks: bool, why: str, thread: int = 0) -> None:
    """Write what a reader has to know: whether the signal may be sent, and what is missing.

    ``thread`` is one of the server's, to which it may be sent.
    """
    import json

    try:
        with open(stem + ".new", "w") as file:
            json.dump({"stacks": stacks, "why": why, "thread": thread}, file)
        os.rename(stem + ".new", stem + ".json")
    except OSError:  # the folder is gone with its launcher, or the disk is full
        return
