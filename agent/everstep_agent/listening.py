"""An address that cannot be listened on, in the operator's words."""

import os


def cannot_listen(key: str, address: str, error: OSError) -> OSError:
    """Return the error with the key of the configuration that is to be changed."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OSError(f"{key}: {address} cannot be listened on ({reason}); choose another there")
