"""Tool output parsing: plain text, table cells, numbers and units, shared by all vendor parsers."""

import re
from collections.abc import Iterator

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
# At most 18 digits: what is longer is no reading, and would not fit a float exactly.
_NUMBER = re.compile(r"\s*(-?[0-9]{1,18}(?:\.[0-9]{1,18})?)(?![0-9.])")
_PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_EVIDENCE_CHARS = 160
MIB = 1 << 20
# No device has a pebibyte; what is more could not be told to the controller either.
_MEMORY_MIB_MAX = 1 << 30


class UnreadableOutputError(ValueError):
    """A tool answered something that is not its output; the first line is the evidence."""

    def __init__(self, tool: str, text: str) -> None:
        super().__init__(f"{tool} answered something else than expected: {first_line(text)!r}")


def plain(text: str) -> str:
    """Return the text without colours and cursor movements."""
    return _ANSI.sub("", text).replace("\r", "")


def first_line(text: str) -> str:
    """Return the first line that says anything, shortened."""
    lines = (line.strip() for line in plain(text).splitlines())
    return next((line[:_EVIDENCE_CHARS] for line in lines if line.strip("+-=| ")), "")


def cells(line: str) -> list[str]:
    """Return the cells of a table row that is drawn with bars; none for a border or prose."""
    stripped = line.strip()
    if not (stripped.startswith("|") and stripped.endswith("|")) or len(stripped) < 2:
        return []
    found = [cell.strip() for cell in stripped[1:-1].split("|")]
    return [] if all(not cell.strip("-=+ ") for cell in found) else found


def number(text: str) -> float | None:
    """Return the number that a value begins with ("43C", "98W / 400W"); None for "N/A" or "-"."""
    match = _NUMBER.match(text)
    return float(match[1]) if match else None


def count(text: str) -> int | None:
    """Return a counter's value; None where there is none."""
    value = number(text)
    return None if value is None or value < 0 or value != int(value) else int(value)


def percent(text: str) -> float | None:
    """Return a share of 0 to 1 for a percentage; None where it is none."""
    value = number(text)
    return value / 100 if value is not None and 0 <= value <= 100 else None


def pci_address(text: str) -> str:
    """Return the PCI address in the kernel's form ("0000:c1:00.0"); empty when there is none."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return ""
    *domain, bus, slot = match[0].lower().split(":")
    return f"{int(domain[0], 16) if domain else 0:04x}:{bus}:{slot}"


def used_and_total(text: str) -> tuple[float, float] | None:
    """Return both numbers of "3418 / 65536" or "100MiB / 98304MiB"; None for anything else."""
    used, bar, total = text.partition("/")
    first, second = number(used), number(total)
    if not bar or first is None or second is None or not 0 <= first <= second or second == 0:
        return None
    return first, second


def mebibytes(size: float | None) -> int | None:
    """Return a size in bytes; None where it is none that a device can have."""
    return int(size) * MIB if size is not None and 0 < size <= _MEMORY_MIB_MAX else None


def fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield the key and value of every line "key : value", as they come."""
    for line in plain(text).splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip():
            yield key.strip(), value.strip()
