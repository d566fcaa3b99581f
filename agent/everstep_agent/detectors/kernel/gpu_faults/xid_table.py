"""Xid table: what each Xid code means for a node whose driver does not say it itself."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from everstep_common.judging.findings import Severity, SuggestedAction

_BRANCH = re.compile(r"(\d{3,4})\.")


def driver_branch(version: str) -> int | None:
    """Return the branch of a driver version: 570 of "570.86.15"; None when it is not known."""
    match = _BRANCH.match(version)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class XidRow:
    """One row of tables/xid.csv. ``severity`` None: the fault of a program, on a healthy GPU.

    ``since`` and ``linked`` are driver branches: from which one the row holds, and from which one
    NVML field 230 and Xid 154 speak about the code (None: never).
    """

    code: int
    name: str
    severity: Severity | None
    action: SuggestedAction
    since: int = 0
    linked: int | None = None

    def is_linked(self, branch: int | None) -> bool:
        """Return whether a driver says itself what to do; an unknown one that does, does."""
        return self.linked is not None and (branch is None or branch >= self.linked)


class XidTable:
    """The rows by code and driver branch; a code without a row is observed only."""

    def __init__(self, rows: Iterable[XidRow] = ()) -> None:
        self._rows: dict[int, list[XidRow]] = {}
        for row in sorted(rows, key=lambda row: row.since):
            self._rows.setdefault(row.code, []).append(row)

    def row(self, code: int, branch: int | None) -> XidRow | None:
        """Return the newest row that the driver reaches; that of the newest driver if unknown."""
        rows = self._rows.get(code, [])
        reached = [row for row in rows if branch is None or row.since <= branch]
        return reached[-1] if reached else None

    def codes(self) -> tuple[int, ...]:
        """Return every code that has a row."""
        return tuple(sorted(self._rows))
