"""Boards of Grafana that have more of a node, a job or the fleet than the page. Pure."""

from urllib.parse import quote, urlsplit


def grafana_problem(address: str) -> str:
    """Say why an address is none of Grafana's; "" where it may be one."""
    parts = urlsplit(address)
    if parts.scheme in ("http", "https") and parts.netloc and not parts.query:
        return ""
    return f"{address!r} is no address of Grafana: it is like https://grafana.cluster.example"


def board(address: str, name: str, variable: str = "", value: str = "") -> str:
    """Return the address of a board that Everstep ships, "node", with its variable; "" without."""
    if not address:
        return ""
    chosen = f"?var-{variable}={quote(value, safe='')}" if variable else ""
    return f"{address.rstrip('/')}/d/everstep-{name}{chosen}"
