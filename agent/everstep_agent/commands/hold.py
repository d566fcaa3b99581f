"""``everstep-agent hold -- COMMAND``: keeps descriptors while COMMAND restarts, as systemd does.

A service manager in small, for where systemd is not PID 1: it speaks the sd_notify(3) protocol of
the descriptor store, restarts the command when it dies, and takes it along when it dies itself.
"""

import argparse
import array
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence

from everstep_agent.ipc.private_address import address_of, bind_private
from everstep_common.sealed_memory import sealed_memory_problem

_PR_SET_PDEATHSIG = 1
_LISTEN_FDS_START = 3
# The most descriptors that are kept, as FileDescriptorStoreMax of everstep-agent.service.
DESCRIPTORS_MAX = 2048
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
# 253 descriptors, the most that one message may have, and the credentials.
_ANCILLARY_BYTES = socket.CMSG_SPACE(253 * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
_RESTART_FIRST_S = 0.2
_RESTART_LONGEST_S = 5.0
# A command that ran this long was healthy: the delay before its restart starts from scratch.
_WELL_S = 10.0
_STOP_S = 20.0


class HeldDescriptors:
    """The descriptors that the command has asked to keep, by name."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, int]] = []

    def apply_notification(self, message: bytes, fds: Sequence[int]) -> None:
        """Do what one notification asks; descriptors that it does not ask to keep are closed.

        Only sealed memory is kept: what else a command stores by mistake would be handed to it
        after every restart.
        """
        lines = message.decode(errors="replace").splitlines()
        fields = dict(line.split("=", 1) for line in lines if "=" in line)
        name = fields.get("FDNAME", "stored")
        if fields.get("FDSTOREREMOVE") == "1":
            self._close(name)
        stores = fields.get("FDSTORE") == "1"
        for fd in fds:
            problem = self._problem(name, fd) if stores else ""
            if stores and not problem:
                self._kept.append((name, fd))
                continue
            os.close(fd)
            if problem:
                print(f"hold: {name!r} is not kept: {problem}", file=sys.stderr, flush=True)

    def _problem(self, name: str, fd: int) -> str:
        if ":" in name:
            return "a name has no colon (sd_pid_notify_with_fds(3))"
        if len(self._kept) >= DESCRIPTORS_MAX:
            return f"{DESCRIPTORS_MAX} descriptors are kept already"
        return sealed_memory_problem(fd)

    def names(self) -> list[str]:
        """Return the names, in the order in which the command will find the descriptors."""
        return [name for name, _ in self._kept]

    def fds(self) -> list[int]:
        """Return the descriptors in that order."""
        return [fd for _, fd in self._kept]

    def _close(self, name: str) -> None:
        for kept_name, fd in self._kept:
            if kept_name == name:
                os.close(fd)
        self._kept = [kept for kept in self._kept if kept[0] != name]


def set_death_signal(signal_number: int) -> None:
    """Have this process killed when its parent's thread ends; only Linux has it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def become(command: Sequence[str], store: HeldDescriptors, notify_fd: int, parent: int) -> None:
    """Turn a forked child into the command, with the kept descriptors from 3 on.

    Behind them is the one by which it reaches the holder.
    """
    set_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the holder died before it could be noticed
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # First above all targets, so that none is overwritten before it is moved.
    passed = [*store.fds(), notify_fd]
    end = _LISTEN_FDS_START + len(passed)
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, end) for fd in passed]
    for index, fd in enumerate(moved):
        os.dup2(fd, _LISTEN_FDS_START + index, inheritable=True)
    os.closerange(end, os.sysconf("SC_OPEN_MAX"))
    environ = {key: value for key, value in os.environ.items() if not key.startswith("WATCHDOG_")}
    environ["NOTIFY_SOCKET"] = address_of(end - 1)
    for key in ("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"):
        environ.pop(key, None)
    if store.fds():
        environ["LISTEN_FDS"] = str(len(store.fds()))
        environ["LISTEN_PID"] = str(os.getpid())
        environ["LISTEN_FDNAMES"] = ":".join(store.names())
    os.execvpe(command[0], list(command), environ)


class DescriptorHolder:
    """Holder of a command's descriptors, which runs the command again when it ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._store = HeldDescriptors()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # Whoever else reached it could fill its queue, or pass descriptors that take long to close.
        self._address = bind_private(self._socket.bind)
        self._socket.setblocking(False)
        self._signals, wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def run(self) -> int:
        """Keep the command running until a signal ends the holder; return its last exit code."""
        delay_s = _RESTART_FIRST_S
        while True:
            pid = self._start()
            pidfd = os.pidfd_open(pid)
            started = time.monotonic()
            try:
                stop = self._serve(pidfd)
                if stop:
                    return self._stop(pid, pidfd, stop)
                _, status = os.waitpid(pid, 0)
            finally:
                os.close(pidfd)
            ran_s = time.monotonic() - started
            delay_s = _RESTART_FIRST_S if ran_s > _WELL_S else delay_s
            code = os.waitstatus_to_exitcode(status)
            print(f"hold: {self._command[0]} ended with {code}; again", file=sys.stderr, flush=True)
            stop = self._serve(None, delay_s)
            if stop:
                return _exit_code(code)
            delay_s = min(2 * delay_s, _RESTART_LONGEST_S)

    def _start(self) -> int:
        holder = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                become(self._command, self._store, self._address, holder)
            except OSError as error:
                print(f"hold: {self._command[0]}: {error.strerror}", file=sys.stderr, flush=True)
            finally:
                os._exit(127)
        return pid

    def _serve(self, pidfd: int | None, limit_s: float | None = None) -> int:
        """Take notifications until the process ends or the time is over; a signal is returned."""
        watched = [self._socket.fileno(), self._signals] + ([] if pidfd is None else [pidfd])
        until = None if limit_s is None else time.monotonic() + limit_s
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            ready, _, _ = select.select(watched, [], [], left)
            # Before the process's end is looked at: what it said last counts.
            if self._socket.fileno() in ready:
                self._receive()
            if self._signals in ready:
                return self._signal()
            if not ready or pidfd in ready:
                self._receive()
                return 0

    def _receive(self) -> None:
        while True:
            try:
                message, ancillary, _, _ = self._socket.recvmsg(
                    65536, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            fds, uid = _descriptors_and_sender(ancillary)
            # A process that traces the command can reach its address, too.
            self._store.apply_notification(message if uid in (0, os.geteuid()) else b"", fds)

    def _signal(self) -> int:
        return os.read(self._signals, 64)[0]

    def _stop(self, pid: int, pidfd: int, number: int) -> int:
        signal.pidfd_send_signal(pidfd, number)
        self._serve(pidfd, _STOP_S)
        if not select.select([pidfd], [], [], 0)[0]:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        return _exit_code(os.waitstatus_to_exitcode(status))


def _descriptors_and_sender(
    ancillary: Sequence[tuple[int, int, bytes]],
) -> tuple[list[int], int | None]:
    fds: array.array[int] = array.array("i")
    uid = None
    for _, kind, body in ancillary:
        if kind == socket.SCM_RIGHTS:
            fds.frombytes(body[: len(body) - len(body) % fds.itemsize])
        elif kind == socket.SCM_CREDENTIALS:
            _, uid, _ = _CREDENTIALS.unpack(body)
    return list(fds), uid


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def main(arguments: Sequence[str]) -> int:
    """Hold a command's descriptors until told to stop; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="everstep-agent hold",
        description="Keeps snapshot memory over restarts of COMMAND, and restarts it when it dies.",
    )
    parser.add_argument(
        "--die-with-parent",
        action="store_true",
        help="end, with COMMAND, when the parent process ends",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …")
    options = parser.parse_args(list(arguments))
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("which command? For example: everstep-agent hold -- everstep-agent")
    if options.die_with_parent:
        parent = os.getppid()
        set_death_signal(signal.SIGKILL)
        if os.getppid() != parent:
            return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup has SIGHUP ignored, and a shell's background job SIGINT.
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # the wakeup descriptor tells of it
    return DescriptorHolder(command).run()
