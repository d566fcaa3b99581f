"""Machine: an id by which two daemons find that they run on the same one."""

import hashlib
import hmac
from pathlib import Path

# What systemd writes once, when a machine is installed; it is to be told to nobody as it stands.
_MACHINE_ID = Path("/etc/machine-id")
_PURPOSE = b"everstep machine"
_LENGTH = 32


def machine_id(path: Path = _MACHINE_ID) -> str:
    """Return the id of this machine, of which its own cannot be told; "" where it has none."""
    try:
        own = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    # As long as a machine is not installed, the file is empty or says so.
    known = len(own) == _LENGTH and own.isalnum()
    return hmac.new(own.encode(), _PURPOSE, hashlib.sha256).hexdigest()[:_LENGTH] if known else ""
