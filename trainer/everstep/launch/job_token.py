"""Job token: the secret that all launchers and training processes of a job share."""

import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

_TOKEN_BYTES = 32
# The user to whom a file server maps root.
_NOBODY = 65534


class TokenError(Exception):
    """The token cannot be used; one sentence with the next step."""


def job_token(job: str, given: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the token: from EVERSTEP_JOB_TOKEN, else from the file, which is made if absent."""
    if token := environ.get("EVERSTEP_JOB_TOKEN", "").strip():
        return token
    path = given or _default_path(job, environ)
    if given is not None and not given.parent.is_dir():
        raise TokenError(
            f"the job token {given} cannot be made: there is no folder {given.parent}; correct"
            " --token-file, or make that folder"
        )
    try:
        if not path.exists():
            _create(path)
        return _read(path)
    except OSError as error:
        raise TokenError(
            f"the job token {path} cannot be used: {error.strerror}; name another file with"
            " --token-file or set EVERSTEP_JOB_TOKEN"
        ) from error


def _default_path(job: str, environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if not os.path.isabs(home):  # a user without an account, or a variable that nobody expanded
        raise TokenError(
            f"there is no place for the job token, for {home} is no absolute path; name a file with"
            " --token-file or set EVERSTEP_JOB_TOKEN"
        )
    return Path(home) / "everstep" / "jobs" / f"{job}.token"


def _create(path: Path) -> None:
    """Write a new token; another launcher's that came first wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A link appears with its content, so no other launcher can read half a token. mkstemp is 0600.
    fd, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_TOKEN_BYTES) + "\n")
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)


def _read(path: Path) -> str:
    found = path.stat()
    mode, user = found.st_mode, os.geteuid()
    if found.st_uid not in (user, 0, *(() if user else (_NOBODY,))):
        raise TokenError(
            f"the job token {path} belongs to another user, who knows it; name another file with"
            " --token-file"
        )
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):  # of a device nobody should change rights
        raise TokenError(f"the job token {path} is not a file; name one with --token-file")
    if mode & 0o077:
        raise TokenError(f"the job token {path} is open to other users; run 'chmod 600 {path}'")
    token = path.read_text(encoding="ascii", errors="replace").strip()
    if not token:
        raise TokenError(f"the job token {path} is empty; remove the file and start again")
    return token
