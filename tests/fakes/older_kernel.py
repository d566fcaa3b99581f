"""Older kernel: runs a command as under Linux before 6.16, which knows no SO_PASSRIGHTS.

``python older_kernel.py COMMAND …``: a seccomp filter refuses the option as such a kernel does.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

# linux/prctl.h, linux/seccomp.h, linux/filter.h
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_SETSOCKOPT = {"x86_64": 54, "aarch64": 208}
_SOL_SOCKET, _SO_PASSRIGHTS = 1, 83
# struct seccomp_data: the number of the call, then from byte 16 on its arguments.
_NUMBER, _LEVEL, _OPTION = 0, 24, 32


def forget_passrights() -> None:
    """Have this process and its children without the option. Raises OSError."""
    code = [
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 5, _SETSOCKOPT[platform.machine()]),
        (_LOAD, 0, 0, _LEVEL),
        (_EQUAL, 0, 3, _SOL_SOCKET),
        (_LOAD, 0, 0, _OPTION),
        (_EQUAL, 0, 1, _SO_PASSRIGHTS),
        (_RETURN, 0, 0, _ERRNO | errno.ENOPROTOOPT),
        (_RETURN, 0, 0, _ALLOW),
    ]
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
    forget_passrights()
    os.execvp(sys.argv[1], sys.argv[1:])
