"""Addresses of daemons: host and port, and whether only their own machine reaches them."""

import ipaddress


def is_loopback(address: str) -> bool:
    """Return whether a host:port (or a bare host) can be reached from this machine only."""
    host = split_address(address)[0]
    if host == "localhost" or address.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def split_address(address: str) -> tuple[str, str]:
    """Return host and port of host:port, [v6]:port or a bare host (port is empty then)."""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, rest.removeprefix(":")
    if address.count(":") == 1:
        host, _, port = address.partition(":")
        return host, port
    return address, ""
