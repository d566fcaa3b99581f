"""Condition: when it is raised, what clears it, and how far automation may go for it."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from everstep_common.judging.findings import Mode

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS

# Drivers and links come up in the first minutes of a boot; agents that judge them then raise
# hundreds of false alarms at every planned reboot.
BOOT_GRACE_NS = 2 * MINUTE_NS
# Agents of another version have others than this one, so a name is known by how it is written.
_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,63}", re.ASCII)


def is_condition_name(name: str) -> bool:
    """Return whether a condition may have this name."""
    return _NAME.fullmatch(name) is not None


def name_problems(names: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with names of conditions that an operator wrote, a sentence each."""
    for name in names:
        if not is_condition_name(name):
            yield f"{name!r} is no condition: expected one as 'XidFatal'; docs/signals.md has all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One lasting condition of one kind of component, as docs/signals.md shows it.

    ``raise_after`` and ``clear_after`` count consecutive polls. An event (a kernel line) has no
    healthy poll: it ends after ``quiet_ns`` without another one, while its source was read.
    """

    name: str
    # What it is about: "gpu/PCI".
    component: str
    # What holds while it is open, and when one poll counts as faulty.
    meaning: str
    # Where the threshold comes from.
    source: str
    clears_when: str
    raise_after: int = 1
    clear_after: int = 1
    boot_grace_ns: int = 0
    quiet_ns: int = 0
    # For how long it has to be watched before it can be raised: a rate, a window, a history.
    window_ns: int = 0
    # The most that automation may do about it unless the operator says otherwise.
    mode: Mode = Mode.OBSERVE
