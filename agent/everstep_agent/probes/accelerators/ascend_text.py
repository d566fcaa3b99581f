"""npu-smi output: parses the text of Huawei's tool into readings of Ascend NPUs."""

from dataclasses import dataclass, replace
from itertools import pairwise

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_agent.probes.accelerators.text import (
    UnreadableOutputError,
    cells,
    count,
    fields,
    mebibytes,
    number,
    pci_address,
    percent,
    plain,
    used_and_total,
)
from everstep_agent.probes.accelerators.vendors import NPU_SMI

TOOL = NPU_SMI[0]
_ABSENT = "npu-smi: UNKNOWN, the device does not exist or has not started"
_PROCESSES = "No running processes found in NPU"


@dataclass(frozen=True, slots=True)
class Ecc:
    """Memory errors of one chip since the node started."""

    corrected: int
    uncorrected: int


@dataclass(frozen=True, slots=True)
class Chip:
    """Device of npu-smi: its place in the tool's numbering, and its reading."""

    npu: int
    chip: int
    reading: AcceleratorReading


def parse_info(text: str) -> tuple[AcceleratorsReading, tuple[Chip, ...]]:
    """Return what ``npu-smi info`` says. Raises UnreadableOutputError."""
    rows = [row for line in plain(text).splitlines() if (row := cells(line))]
    heads = _heads(rows)
    if heads is None:
        raise UnreadableOutputError(TOOL, text)
    version, first, second = heads
    split = _process_table(rows)
    processes = _processes(rows[split:])
    chips = []
    devices = [row for row in rows[:split] if len(row) == 3 and row[0][:1].isdigit()]
    for upper, lower in zip(devices[::2], devices[1::2], strict=False):
        chip = _chip(_named(first, upper), _named(second, lower), version)
        if chip is not None:
            chips.append(_with_processes(chip, processes))
    readings = tuple(chip.reading for chip in chips)
    return AcceleratorsReading(tool=TOOL, version=version, devices=readings), tuple(chips)


def parse_ecc(text: str) -> Ecc:
    """Return what ``npu-smi info -t ecc`` says. Raises UnreadableOutputError."""
    corrected = uncorrected = None
    for key, value in fields(text):
        name, errors = key.lower().replace("-", " "), count(value)
        if errors is None or not name.endswith("bit error count"):
            continue
        if "single" in name:
            corrected = (corrected or 0) + errors
        elif "double" in name:
            uncorrected = (uncorrected or 0) + errors
    if corrected is None or uncorrected is None:
        raise UnreadableOutputError(TOOL, text)
    return Ecc(corrected, uncorrected)


def parse_health(text: str) -> str:
    """Return the error code and its text, of ``npu-smi info -t health``; empty without any."""
    said = {key.lower(): value for key, value in fields(text)}
    parts = (said.get("error code", ""), said.get("error information", ""))
    return ", ".join(part for part in parts if part.upper() not in ("", "NA", "N/A"))[:200]


def _heads(rows: list[list[str]]) -> tuple[str, list[list[str]], list[list[str]]] | None:
    """Return the version and the names of the columns: the table has two lines per device."""
    version = ""
    for above, below in pairwise(rows):
        if len(above) == 1 and above[0].startswith(TOOL):
            version = above[0].rpartition("Version:")[2].strip()
        if above[0].split()[:2] == ["NPU", "Name"] and below[0].split()[:1] == ["Chip"]:
            return version, [cell.split() for cell in above], [cell.split() for cell in below]
    return None


def _named(head: list[list[str]], row: list[str]) -> dict[str, str]:
    """Return a row's values by the names of the columns; "a / b" is one value."""
    named: dict[str, str] = {}
    for names, cell in zip(head, row, strict=False):
        words = cell.replace(" /", "/").replace("/", " / ").split()
        values: list[str] = []
        while words:
            take = 3 if len(words) > 2 and words[1] == "/" else 1
            values.append(" ".join(words[:take]))
            words = words[take:]
        named |= dict(zip(names, values, strict=False))
    return named


def _chip(upper: dict[str, str], lower: dict[str, str], driver: str) -> Chip | None:
    npu, chip = count(upper.get("NPU", "")), count(lower.get("Chip", ""))
    if npu is None or chip is None:
        return None
    pci = pci_address(lower.get("Bus-Id", ""))
    memory = used_and_total(lower.get("HBM-Usage(MB)", "")) or used_and_total(
        lower.get("Memory-Usage(MB)", "")
    )
    health = upper.get("Health", "")
    reading = AcceleratorReading(
        vendor="ascend",
        id=pci or f"{npu}.{chip}",
        name=_name(upper.get("Name", "NPU")),
        pci=pci,
        driver=driver,
        memory_bytes=mebibytes(memory[1]) if memory else None,
        memory_used_ratio=memory[0] / memory[1] if memory else None,
        temperature_c=number(upper.get("Temp(C)", "")),
        power_w=number(upper.get("Power(W)", "")),
        busy_ratio=percent(lower.get("AICore(%)", "")),
        health=health,
        error=_ABSENT if health.upper() == "UNKNOWN" else "",
    )
    return Chip(npu, chip, reading)


def _name(said: str) -> str:
    return said if said.startswith("Ascend") else f"Ascend {said}"


def _process_table(rows: list[list[str]]) -> int:
    """Return where the table of processes begins."""
    for index, row in enumerate(rows):
        if len(row) > 1 and row[1].lower().startswith("process id"):
            return index
    return len(rows)


def _processes(rows: list[list[str]]) -> dict[tuple[int, int | None], int]:
    """Return how many processes each chip has; without a chip: the whole NPU has none."""
    found: dict[tuple[int, int | None], int] = {}
    for row in rows:
        if row[0].startswith(_PROCESSES):
            npu = count(row[0].removeprefix(_PROCESSES))
            if npu is not None:
                found[npu, None] = 0
        elif len(row) > 1 and count(row[1]) is not None:
            place = [count(word) for word in row[0].split()]
            if len(place) == 2 and place[0] is not None:
                found[place[0], place[1]] = found.get((place[0], place[1]), 0) + 1
    return found


def _with_processes(chip: Chip, found: dict[tuple[int, int | None], int]) -> Chip:
    listed = any(npu == chip.npu for npu, _ in found)
    number_of = found.get((chip.npu, chip.chip), 0)
    processes = number_of if listed else None
    return Chip(chip.npu, chip.chip, replace(chip.reading, processes=processes))
