"""NVLink error decoding: the registers of Xid 144 to 150 (Blackwell) and of Xid 74 (older)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

# From this driver branch on the register IntrInfo of Xid 144 to 150 has another layout.
_SECOND_LAYOUT = 575


class Nvlink5Action(Enum):
    """Action that a row of the decode table asks for."""

    IGNORE = "ignore"
    RESET = "reset"
    FOLLOW_154 = "follow_154"


@dataclass(frozen=True, slots=True)
class Nvlink5Row:
    """One row of tables/nvlink5.csv; ``v1`` and ``v2`` are the lowest bits of IntrInfo, as text."""

    xid: int
    units: tuple[str, ...]
    subcode: int
    v1: str
    v2: str
    status: int
    action: Nvlink5Action

    def fits(self, error: "Nvlink5Error", branch: int | None) -> bool:
        """Return whether an error of a driver of this branch (None: unknown) is this row's."""
        if self.status != error.status or self.subcode != error.subcode:
            return False
        if error.unit not in self.units:
            return False
        first, second = (_ends_with(error.intr_info, bits) for bits in (self.v1, self.v2))
        if branch is None:
            return first or second
        return first if branch < _SECOND_LAYOUT else second


@dataclass(frozen=True, slots=True)
class Nvlink5Error:
    """Parts of a line: "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 …)".

    Some drivers pad the columns. ``status`` is None where the line has one register only.
    """

    xid: int
    unit: str
    word: str
    link: int
    intr_info: int
    status: int | None

    @property
    def subcode(self) -> int:
        """Return bits 25 to 20 of IntrInfo."""
        return self.intr_info >> 20 & 0x3F


_EXTENDED = re.compile(
    r"\b(?P<unit>[A-Z][A-Z0-9_]{2,40})\s{1,20}(?P<word>[A-Za-z-]{3,20})\s{1,20}"
    r"\w{1,8}(?: \d{1,4})?\s{1,8}\w{1,8}(?: \d{1,4})?\s{1,8}Link\s{1,8}(?P<link>-?\d{1,4})\s{0,8}"
    r"[(\[](?P<info>0x[0-9a-fA-F]{1,8})\b(?:[\s,]{1,8}(?P<status>0x[0-9a-fA-F]{1,8})\b)?"
)


_FATAL = re.compile(r"(?<![\w-])fatal\b", re.I)


def nvlink5_error(xid: int, text: str) -> Nvlink5Error | None:
    """Return what the text of an Xid 144 to 150 says; None for the short form."""
    match = _EXTENDED.search(text)
    if match is None or not 144 <= xid <= 150:
        return None
    return Nvlink5Error(
        xid=xid,
        unit=match["unit"],
        word=match["word"],
        link=int(match["link"]),
        intr_info=int(match["info"], 16),
        status=int(match["status"], 16) if match["status"] else None,
    )


def is_fatal(text: str) -> bool:
    """Return whether the driver itself calls an error fatal; "Non-fatal" and "Nonfatal" are not."""
    return _FATAL.search(text) is not None


def decode(
    rows: Iterable[Nvlink5Row], error: Nvlink5Error, branch: int | None
) -> Nvlink5Action | None:
    """Return what the decode table asks for; None where it has no row."""
    found = {row.action for row in rows if row.xid == error.xid and row.fits(error, branch)}
    # Without a driver version rows of both layouts may fit: the answer counts only if they agree.
    return found.pop() if len(found) == 1 else None


def _ends_with(value: int, bits: str) -> bool:
    return value & (1 << len(bits)) - 1 == int(bits, 2)


class Xid74Class(Enum):
    """Meaning of a bit in a register of Xid 74, mildest first."""

    IGNORE = "ignore"
    THRESHOLD = "threshold"
    SYMPATHETIC = "sympathetic"
    SIGNAL = "signal"
    REPEATS = "repeats"
    FABRIC_RESET = "fabric_reset"
    HARDWARE = "hardware"


@dataclass(frozen=True, slots=True)
class Xid74Row:
    """One row of tables/xid74.csv; ``register`` counts from 1."""

    register: int
    bits: tuple[int, ...]
    kind: Xid74Class
    name: str


@dataclass(frozen=True, slots=True)
class Xid74Error:
    """The link and the seven registers of "NVLink: fatal error detected on link 14(0x0, …)"."""

    link: int
    registers: tuple[int, ...]


_REGISTERS = re.compile(
    r"\blink (?P<link>\d{1,4})\s?\((?P<registers>0x[0-9a-fA-F]{1,8}(?:,? ?0x[0-9a-fA-F]{1,8}){6})\)"
)


def xid74_error(text: str) -> Xid74Error | None:
    """Return what the text of an Xid 74 says; None for the form without registers."""
    match = _REGISTERS.search(text)
    if match is None:
        return None
    registers = re.findall(r"0x[0-9a-fA-F]+", match["registers"])
    return Xid74Error(int(match["link"]), tuple(int(value, 16) for value in registers))


def xid74_meaning(rows: Sequence[Xid74Row], error: Xid74Error) -> Xid74Row | None:
    """Return the row of the gravest bit that is set; None for bits that no row knows."""
    order = list(Xid74Class)
    found = [row for row in rows if _is_set(error.registers, row)]
    return max(found, key=lambda row: order.index(row.kind), default=None)


def _is_set(registers: Sequence[int], row: Xid74Row) -> bool:
    return any(registers[row.register - 1] >> bit & 1 for bit in row.bits)
