"""Names of dumps: which rank a file is of, wherever a job's script or people put a date. Pure."""

import re
from dataclasses import dataclass

_ENDINGS = re.compile(r"(?:\.(?:json|pickle|pkl|bin|trace|dump))+$")
# 2026-11-28, 20261128, with a time of the day behind it or without, and seconds since 1970.
_CLOCK = r"\d{2}[-:.]?\d{2}(?:[-:.]?\d{2}(?:\.\d{1,9})?)?Z?"
_DAY = r"(?:19|20)\d{2}([-_.]?)(?:0[1-9]|1[0-2])\1[0-3]\d"
_DATE = re.compile(rf"(?<!\d)(?:{_DAY}(?:[T_. -]{_CLOCK})?|\d{{10,19}})(?!\d)")
_NAMED = re.compile(r"rank[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_LAST = re.compile(r"(.*?)(\d{1,6})")


@dataclass(frozen=True, slots=True)
class DumpName:
    """A file's name as that of a dump: its rank, and what the names of its peers have as well."""

    rank: int
    stem: str


def dump_name(name: str) -> DumpName | None:
    """Return what a name says; None where it is not that of a dump.

    The rank is the number behind the word, or else the last of the name but for dates.
    """
    undated = _DATE.sub("", name)
    if (found := _NAMED.search(undated)) is not None:
        return DumpName(int(found[1]), undated[: found.start(1)])
    bare = _ENDINGS.sub("", undated).rstrip("-_.T ")
    if (last := _LAST.fullmatch(bare)) is not None:
        return DumpName(int(last[2]), last[1])
    return None
