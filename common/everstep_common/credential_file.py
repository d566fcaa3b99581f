"""Credential file: a setting for a secret of somebody else's, such as a token or a password.

The configuration names a file, and has nothing of what is in it: no dump, log or help can show it.
The file is read when its content is needed, so that one that is replaced counts from then on.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

# A token of Kubernetes has some 1,000 bytes, and none has as many as this.
_BYTES_MAX = 64 << 10
# What nobody but the owner may do, besides reading by the group.
_TOO_OPEN = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


class CredentialError(Exception):
    """A credential cannot be used; one sentence says why and what to do, without what it is."""


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """Path of a file with one credential, which only its owner and its group may read.

    It belongs to root or to the user of the daemon. Symbolic links are followed: Kubernetes and
    systemd hand out credentials as such.
    """

    path: Path

    def read(self) -> str:
        """Return what is in the file, without the end of its line. Raises CredentialError."""
        if not self.path.is_absolute():
            # It may be the secret itself, which must not get into a log.
            raise CredentialError("expected the absolute path of a file, not what is in it")
        try:
            with open(self.path, "rb", opener=_open_at_once) as file:
                self._check(os.fstat(file.fileno()))
                content = file.read(_BYTES_MAX + 1)
        except OSError as error:
            raise CredentialError(self._unreadable(error)) from error
        except ValueError as error:
            raise CredentialError(f"expected the path of a file: {error}") from error
        return self._text(content)

    def problem(self) -> str:
        """Return why it cannot be used now; empty where it can."""
        try:
            self.read()
        except CredentialError as error:
            return str(error)
        return ""

    def _unreadable(self, error: OSError) -> str:
        said, uid = f"{self.path} cannot be read: {error.strerror}", os.geteuid()
        if isinstance(error, PermissionError):
            return f"{said} to uid {uid}, who runs this: 'chown {uid} {self.path}', mode 0600"
        if isinstance(error, FileNotFoundError):
            made = f"install -m 600 -o {uid} /dev/stdin {self.path}"
            return f"{said}; '{made}' makes it of one line that is typed, and Ctrl-D"
        return said

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise CredentialError(f"{self.path} is not a file")
        if status.st_uid not in (0, os.geteuid()):
            raise CredentialError(
                f"{self.path} belongs to uid {status.st_uid}, who is neither root nor the user of "
                f"this process; 'chown {os.geteuid()} {self.path}'"
            )
        if status.st_mode & _TOO_OPEN:
            raise CredentialError(
                f"{self.path} has the mode {stat.S_IMODE(status.st_mode):04o}, by which others may "
                f"read or change it; 'chmod g-wx,o= {self.path}', and replace what is in it"
            )

    def _text(self, content: bytes) -> str:
        """Return the credential. No error has its cause chained, which has the content in it."""
        if len(content) > _BYTES_MAX:
            raise CredentialError(f"{self.path} has more than {_BYTES_MAX} bytes")
        try:
            text = content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise CredentialError(f"{self.path} is not UTF-8") from None
        if not text or not text.isprintable():
            raise CredentialError(f"{self.path} is expected to have one line of text, and no more")
        return text


def _open_at_once(path: str, flags: int) -> int:
    """Open a path that may be a pipe to which nobody writes."""
    return os.open(path, flags | os.O_NONBLOCK)
