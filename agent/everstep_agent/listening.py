"""Addresses that cannot be listened on, or not told to others, in the operator's words."""

import ipaddress
import os


def cannot_listen(key: str, address: str, error: OSError) -> OSError:
    """Return the error with the key of the configuration that is to be changed."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OSError(f"{key}: {address} cannot be listened on ({reason}); choose another there")


def is_wildcard(host: str) -> bool:
    """Return whether a host stands for all addresses of this node, and so names none."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host == ""
