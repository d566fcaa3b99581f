"""Addresses of a controller: a Unix socket (``unix:/path``) or host:port, and the defaults."""

import os
from collections.abc import Mapping
from pathlib import Path

from everstep_common.addresses import split_address

_UNIX = "unix:"
# sun_path of unix(7) has 108 bytes, the last of them zero.
_PATH_BYTES_MAX = 107
_SYSTEM = Path("/run/everstep-controller")
# Of both defaults, for people.
_SHOWN = (
    "in /run/everstep-controller where that exists or for root, else in "
    "$XDG_STATE_HOME/everstep-controller"
)
DEFAULT_SHOWN = f"the socket controller.sock {_SHOWN}"
SECRET_SHOWN = f"secret {_SHOWN}"


def socket_path(address: str) -> Path | None:
    """Return the path of a Unix socket's address; None for host:port."""
    if not address.startswith(_UNIX):
        return None
    return Path("/" + address.removeprefix(_UNIX).lstrip("/"))


def address_problem(key: str, value: str) -> str:
    """Say what is wrong with an address of the controller; empty when nothing is."""
    path = socket_path(value)
    if path is None:
        host, port = split_address(value)
        if host and port.isdigit() and int(port) < 65536:
            return ""
        return f"{key}: expected unix:/path or host:port, got {value!r}"
    if not value.removeprefix(_UNIX).startswith("/") or path.parent == path:
        return f"{key}: expected unix:/ and the rest of an absolute path, got {value!r}"
    size = len(os.fsencode(path))
    if size > _PATH_BYTES_MAX:
        return (
            f"{key}: the path of a Unix socket has at most {_PATH_BYTES_MAX} bytes, this one has "
            f"{size}; use a shorter folder"
        )
    return ""


def default_folder(
    system: Path = _SYSTEM, environ: Mapping[str, str] = os.environ, uid: int | None = None
) -> Path:
    """Return the folder of socket and secret: the service's where there is one, else the user's."""
    if system.exists() or (os.geteuid() if uid is None else uid) == 0:
        return system
    # Beside the journal, and not in XDG_RUNTIME_DIR, which goes when its user logs out.
    home = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "everstep-controller"


def default_address() -> str:
    """Return where a controller listens, and is looked for, when nobody says otherwise."""
    return f"{_UNIX}{default_folder() / 'controller.sock'}"


def default_secret_file() -> Path:
    """Return the secret of a controller that listens on loopback without certificates."""
    return default_folder() / "secret"
