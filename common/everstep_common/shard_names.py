"""Shard names: how a rank's private shards are named, and which may come from another rank."""

import re

# "rank-3/x": rank 3 needs its own shard; "rank-3~/x": another rank's may replace one that is lost.
_REPLACEABLE = "~"
_PRIVATE = re.compile(r"rank-(\d+)(~?)/(.*)", re.DOTALL)


def private_name(rank: int, path: str, *, replaceable: bool = False) -> str:
    """Return the name of what only this rank has."""
    return f"rank-{rank}{_REPLACEABLE if replaceable else ''}/{path}"


def owner(name: str) -> tuple[int | None, str]:
    """Return the rank whose private thing it is (None: of all ranks), and the path."""
    match = _PRIVATE.fullmatch(name)
    return (int(match[1]), match[3]) if match else (None, name)


def is_replaceable(name: str) -> bool:
    """Return whether the rank can do without its own."""
    # The cheap test comes first: a job has hundreds of thousands of names, and few are private.
    return name.startswith("rank-") and (m := _PRIVATE.match(name)) is not None and bool(m[2])
