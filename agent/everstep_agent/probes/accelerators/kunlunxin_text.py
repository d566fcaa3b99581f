"""Kunlunxin xpu-smi output: parses the text of Baidu's tool into readings of its devices."""

import re
from itertools import pairwise

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_agent.probes.accelerators.text import (
    UnreadableOutputError,
    cells,
    count,
    mebibytes,
    number,
    pci_address,
    percent,
    plain,
    used_and_total,
)

TOOL = "xpu-smi"
_DRIVER = re.compile(r"XPU-SMI\s+Driver Version:\s*(\S+)\s+XPU-RT Version:")
_FIRST = re.compile(r"(\d{1,4})\s+(\S.*?)\s+(?:N/A|On|Off)")
_TEMPERATURE = re.compile(r"\s(\d{1,3})C\s")
_POWER = re.compile(r"\s(\d{1,5})W\s*/")


def is_kunlunxin(text: str) -> bool:
    """Return whether xpu-smi without arguments has answered like Kunlunxin's."""
    return _DRIVER.search(plain(text)) is not None


def parse_summary(text: str) -> AcceleratorsReading:
    """Return what ``xpu-smi`` says. Raises UnreadableOutputError.

    Each device has three lines of three cells. Processes are not counted: the vendor's sample
    lists none, so nobody knows here what a line of one looks like.
    """
    found = plain(text)
    driver = _DRIVER.search(found)
    if driver is None:
        raise UnreadableOutputError(TOOL, text)
    rows = [row for line in found.splitlines() if len(row := cells(line)) == 3]
    devices = []
    for upper, middle in pairwise(rows):
        if first := _FIRST.fullmatch(upper[0]):
            devices.append(_device(first[1], first[2], upper, middle, driver[1]))
    if not devices and "XPU  Name" not in found:
        raise UnreadableOutputError(TOOL, text)
    return AcceleratorsReading(tool=TOOL, version=driver[1], devices=tuple(devices))


def _device(
    index: str, name: str, upper: list[str], middle: list[str], driver: str
) -> AcceleratorReading:
    pci = pci_address(upper[1].split()[0]) if upper[1].split() else ""
    memory = used_and_total(middle[1])
    temperature, power = _TEMPERATURE.search(middle[0]), _POWER.search(middle[0])
    return AcceleratorReading(
        vendor="kunlunxin",
        id=pci or index,
        name=f"Kunlunxin {name}",
        pci=pci,
        driver=driver,
        memory_bytes=mebibytes(memory[1]) if memory else None,
        memory_used_ratio=memory[0] / memory[1] if memory else None,
        temperature_c=number(temperature[1]) if temperature else None,
        power_w=number(power[1]) if power else None,
        busy_ratio=percent(middle[2]),
        ecc_uncorrected=count(upper[2]),
    )
