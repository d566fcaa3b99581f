"""The system calls that a shipped unit allows, as systemd reads its lines, and a run under them.

``python unit_filter.py NUMBERS COMMAND …`` refuses all calls but those by number, with EPERM.
"""

import ctypes
import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

# linux/prctl.h, linux/seccomp.h, linux/filter.h
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
# Where seccomp_data has it; the lower half, on the machines that daemons run on.
_FIRST_ARGUMENT = 16
_KEY = "SystemCallFilter="


def allowed_calls(units: Iterable[Path]) -> frozenset[str]:
    """Return the calls that a unit and its drop-ins allow, in the order in which they are read."""
    allowed: set[str] = set()
    for unit in units:
        for line in unit.read_text().splitlines():
            if line.startswith(_KEY):
                words = line.removeprefix(_KEY)
                calls = _calls_of(words.removeprefix("~").split())
                allowed = allowed - calls if words.startswith("~") else allowed | calls
    return frozenset(allowed | _group("@default"))


def _calls_of(words: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for word in words:
        found |= _group(word) if word.startswith("@") else {word}
    return found


@cache
def _group(name: str) -> frozenset[str]:
    """Return the calls of one of systemd's groups, and of the groups in it."""
    told = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name],
        capture_output=True,
        text=True,
        check=True,
    )
    words = [line.strip() for line in told.stdout.splitlines()[1:]]
    return frozenset(_calls_of(word for word in words if word and not word.startswith("#")))


def numbers_of(calls: Iterable[str]) -> list[int]:
    """Return the numbers that calls have on this machine; those that it does not know have none."""
    resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name
    numbers = [resolve(ctypes.c_char_p(name.encode())) for name in sorted(calls)]
    return [number for number in numbers if number >= 0]


def refuse_others(numbers: Sequence[int]) -> None:
    """Have this process and its children refused all other calls. Raises OSError."""
    code = [(_LOAD, 0, 0, 0)]
    for number in numbers:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    code.append((_RETURN, 0, 0, _ERRNO | errno.EPERM))
    _install(code)


def refuse_family(family: int) -> None:
    """Have this process and its children refused sockets of an address family. Raises OSError."""
    (call,) = numbers_of(["socket"])
    _install(
        [
            (_LOAD, 0, 0, 0),
            (_EQUAL, 0, 3, call),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_EQUAL, 0, 1, family),
            (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
            (_RETURN, 0, 0, _ALLOW),
        ]
    )


def _install(code: Sequence[tuple[int, int, int, int]]) -> None:
    body = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(body))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))


if __name__ == "__main__":
    refuse_others([int(number) for number in sys.argv[1].split(",")])
    os.execvp(sys.argv[2], sys.argv[2:])
