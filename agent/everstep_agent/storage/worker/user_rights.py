"""User rights: the worker becomes the user of a job, for good and with nothing else."""

import ctypes
import fcntl
import os
import resource
import select
import signal
import struct
import sys

from everstep_agent.storage.backends.backend import BackendError, ClosedError
from everstep_agent.storage.worker.messages import AssumeUser
from everstep_common.process_priority import give_way

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
# The Python of the oldest supported version has no name for it.
_F_SETSIG = 10
_CAPABILITY_VERSION = 0x20080522
_FILES_MAX = 256
_NICENESS = 10
_libc = ctypes.CDLL(None, use_errno=True)


def assume_user(user: AssumeUser, parent: int, lifeline: int) -> None:
    """Give up every right that is not the user's, and end with the agent, which has the other end.

    Raises BackendError when that is not allowed.
    """
    _be_modest()
    try:
        _change_user(user)
    except PermissionError as error:
        raise ClosedError(
            f"the agent runs as user {os.geteuid()} and may not open files as user {user.uid}: "
            "run it as root, or give it CAP_SETUID and CAP_SETGID (installing.md, Storage for"
            " snapshots)"
        ) from error
    _drop_capabilities()
    os.umask(user.umask & 0o777)
    os.chdir("/")
    _control(_PR_SET_NO_NEW_PRIVS, 1)
    # It starts no program, whatever a library finds in the user's configuration.
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    # Another program of the same user must not read this process's memory or take its connection.
    _control(_PR_SET_DUMPABLE, 0)
    # After the change of user, at which the kernel forgets this setting.
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _end_with(lifeline)
    if os.getppid() != parent:
        raise BackendError("the agent is gone")


def _end_with(lifeline: int) -> None:
    """Have the kernel kill this process when nobody has the other end of the pipe any more.

    The signal of a parent's death comes only where the parent may signal this user, which an agent
    without CAP_KILL may not. This one is sent with the rights of whoever asked for it, which is
    this process, and needs nothing of it: it may be stopped or hang in a call.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    ended = select.poll()
    ended.register(lifeline)
    if ended.poll(0):
        raise BackendError("the agent is gone")


def _be_modest() -> None:
    # The agent is protected from the out-of-memory killer; a worker must not inherit that.
    for refused in give_way(_NICENESS, 0):
        print(f"a storage worker competes with training: {refused}", file=sys.stderr)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # A limit may be lowered only.
    most = _FILES_MAX if files == resource.RLIM_INFINITY else min(_FILES_MAX, files)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _change_user(user: AssumeUser) -> None:
    if min(user.uid, user.gid, *user.groups) < 0:
        # For the kernel -1 means "unchanged": the worker would keep the agent's user.
        raise BackendError("whose files these are is not known")
    if user.uid == os.geteuid() == os.getuid() and user.uid != 0:
        return  # its own jobs: groups and all are what they should be
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def _drop_capabilities() -> None:
    """Drop all: what root's job may is what its user id alone gives it."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    if _libc.capset(header, struct.pack("=6I", *[0] * 6)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _control(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
