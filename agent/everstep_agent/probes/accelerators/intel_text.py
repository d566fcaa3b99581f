"""Intel xpu-smi output: parses the text of XPU Manager's tool into readings of Intel GPUs."""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from everstep_agent.detectors.accelerators.reading import AcceleratorReading
from everstep_agent.probes.accelerators.text import (
    UnreadableOutputError,
    cells,
    count,
    mebibytes,
    number,
    pci_address,
    percent,
    plain,
)

TOOL = "xpu-smi"
# Numbers of the statistics to ask for: utilisation, power, temperatures of core and memory, memory
# used, and memory errors. "Please do not dump" others, says the manual of 1.x.
METRICS = "0,1,3,4,18,29,30"
PROPERTIES = "1,5,8,9,16"
# The names of metric 0, in 1.0 to 1.2 and since 1.3.
_BUSY = ("GPU Utilization (%)", "Average % utilization of all GPU Engines")
# Health words, the worst last; "unknown" of one part says nothing of the others. The manual spells
# "Ok" and "OK" in the same table.
_WORDS = ("unknown", "ok", "warning", "critical")
# By these words an answer is recognised as Intel's: the help of 1.x, the summary of 2.x.
_TITLE = re.compile(
    r"Intel(?:\(R\))? XPU(?:-SMI| System Management Interface)(?: --)? v([0-9]{1,3})\."
)
_STATUS = re.compile(r"Status:\s*(\w+)", re.IGNORECASE)
_THROTTLE = re.compile(r"Throttle Threshold:\s*(\d{1,4})\s*Celsius", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Health of one device by its tool; ``detail`` names the parts that are not Ok."""

    word: str = ""
    detail: str = ""
    core_limit_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """One line of the dump."""

    busy_ratio: float | None = None
    power_w: float | None = None
    core_c: float | None = None
    memory_used_mib: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None


def major_version(text: str) -> int | None:
    """Return the version if xpu-smi without arguments has answered like Intel's; else None."""
    found = _TITLE.search(plain(text)[:2000])
    return int(found[1]) if found else None


def dump_arguments(major: int) -> tuple[str, ...]:
    """Return how to ask for the statistics of all devices, once."""
    number_of = "-n" if major < 2 else "--number"
    return ("dump", "-d", "-1", "--metrics", METRICS, number_of, "1")


def parse_discovery(text: str) -> dict[int, AcceleratorReading]:
    """Return what ``discovery -j`` lists, by device number. Raises UnreadableOutputError."""
    try:
        answer = json.loads(plain(text))
    except (ValueError, RecursionError) as error:
        raise UnreadableOutputError(TOOL, text) from error
    entries = answer.get("device_list") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise UnreadableOutputError(TOOL, text)
    found = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(number_of := entry.get("device_id"), int):
            found[number_of] = _device(number_of, entry)
    return found


def _device(number_of: int, entry: Mapping[object, object]) -> AcceleratorReading:
    pci = pci_address(_word(entry, "pci_bdf_address"))
    return AcceleratorReading(
        vendor="intel",
        id=pci or str(number_of)[:20],
        name=_word(entry, "device_name") or "Intel GPU",
        serial=_word(entry, "uuid"),
        pci=pci,
    )


def _word(entry: Mapping[object, object], key: str) -> str:
    value = entry.get(key)
    return value[:100] if isinstance(value, str) else ""


def parse_properties(text: str) -> dict[int, dict[str, str]]:
    """Return what ``discovery --dump`` lists, by device number. Raises UnreadableOutputError."""
    found = {}
    for row in _table(text, "Device ID"):
        if (device := count(row["Device ID"])) is not None:
            found[device] = {key: value for key, value in row.items() if value not in ("", "N/A")}
    return found


def parse_statistics(text: str) -> dict[int, Statistics]:
    """Return what ``dump`` lists: the newest line of each device. Raises UnreadableOutputError."""
    found = {}
    for row in _table(text, "DeviceId"):
        if (device := count(row["DeviceId"])) is not None:
            found[device] = _statistics(row)
    return found


def _statistics(row: Mapping[str, str]) -> Statistics:
    busy = next((row[name] for name in _BUSY if name in row), "")
    return Statistics(
        busy_ratio=percent(busy),
        power_w=number(row.get("GPU Power (W)", "")),
        core_c=number(_beginning(row, "GPU Core Temperature (")),
        memory_used_mib=number(row.get("GPU Memory Used (MiB)", "")),
        ecc_corrected=count(row.get("GPU Memory Errors Correctable", "")),
        ecc_uncorrected=count(row.get("GPU Memory Errors Uncorrectable", "")),
    )


def _beginning(row: Mapping[str, str], name: str) -> str:
    """Return the value of the first column whose name begins so: 1.x and 2.x differ in units."""
    return next((value for column, value in row.items() if column.startswith(name)), "")


def _table(text: str, key: str) -> Iterator[dict[str, str]]:
    """Yield the rows under the header that has this column."""
    head: list[str] = []
    try:
        for row in csv.reader(plain(text).splitlines(), skipinitialspace=True):
            values = [value.strip() for value in row]
            if key in values:
                head = values
            elif head and len(values) == len(head):
                yield dict(zip(head, values, strict=True))
    except csv.Error as error:
        raise UnreadableOutputError(TOOL, text) from error
    if not head:
        raise UnreadableOutputError(TOOL, text)


def parse_health(text: str) -> dict[int, Health]:
    """Return what ``health -l`` says, by device number. Raises UnreadableOutputError."""
    found: dict[int, Health] = {}
    device: int | None = None
    part = ""
    for line in plain(text).splitlines():
        row = cells(line)
        if len(row) != 2:
            continue
        part = row[0] or part
        if row[0] == "Device ID":
            device = count(row[1])
            if device is not None:
                found[device] = Health()
        elif device is not None:
            found[device] = _with_line(found[device], part, row[1])
    if not found:
        raise UnreadableOutputError(TOOL, text)
    return found


def _with_line(health: Health, part: str, line: str) -> Health:
    limit = health.core_limit_c
    if "Core Temperature" in part and (throttle := _THROTTLE.search(line)):
        limit = number(throttle[1])
    word, detail = health.word, health.detail
    if status := _STATUS.match(line):
        word = max(word, status[1].lower(), key=_badness)
        if _badness(status[1].lower()) > _badness("ok"):
            detail = f"{detail}; {part}: {line}".removeprefix("; ")[:200]
    elif detail and line.startswith("Description:") and part in detail:
        detail = f"{detail}, {line}"[:200]
    return Health(word=word, detail=detail, core_limit_c=limit)


def _badness(word: str) -> float:
    """Return how bad a word is; one that the manual does not know is between the known ones."""
    if not word:
        return -1.0
    return float(_WORDS.index(word)) if word in _WORDS else 1.5


def memory_bytes(properties: Mapping[str, str]) -> int | None:
    """Return the memory that ``discovery --dump`` says ("32768.00 MiB")."""
    value = properties.get("Memory Physical Size", "")
    return mebibytes(number(value)) if value.endswith("MiB") else None
