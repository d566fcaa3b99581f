"""Slurm's lists of nodes, such as n[1-3,07],rack[0-1]a[1-2], as names. Pure."""

import re
from collections.abc import Iterator

_PART = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_RANGE = re.compile(r"([^\[]*)\[([^\]]*)\](.*)")
# A list of more names is none that a cluster has.
_NAMES_MAX = 1_000_000


def expand(hosts: str) -> list[str]:
    """Return the names of a list; an empty one where it cannot be one."""
    found: list[str] = []
    for part in _PART.findall(hosts):
        for name in _names(part):
            found.append(name)
            if len(found) > _NAMES_MAX:
                return []
    return found


def _names(part: str) -> Iterator[str]:
    ranged = _RANGE.fullmatch(part)
    if ranged is None:
        yield part
        return
    before, numbers, after = ranged.groups()
    for number in numbers.split(","):
        for one in _numbers(number):
            yield from _names(f"{before}{one}{after}")


def _numbers(text: str) -> Iterator[str]:
    first, _, last = text.partition("-")
    last = last or first
    if not (first.isdigit() and last.isdigit()) or int(last) - int(first) > _NAMES_MAX:
        return
    for number in range(int(first), int(last) + 1):
        yield str(number).zfill(len(first))
