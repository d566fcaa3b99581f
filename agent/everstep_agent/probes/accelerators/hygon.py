"""Hygon probe: reads DCUs through the vendor's tool hy-smi.

Written for hy-smi of DTK 23.10 and 24.04 from the outputs that PaddlePaddle's documentation of
these devices shows: Hygon's own shows it as a picture only. It was not run on the hardware. The
tool's short form has no health word, no ECC counter and no threshold, and its longer forms are not
documented in text: what they would say is not guessed here.
"""

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_agent.probes.accelerators.text import (
    UnreadableOutputError,
    count,
    number,
    percent,
    plain,
)
from everstep_agent.probes.accelerators.tool import Tool
from everstep_agent.probes.accelerators.vendors import HY_SMI

TOOL = HY_SMI[0]
# What the device is called: DCU up to DTK 24, HCU in newer versions.
_DEVICES = ("DCU", "HCU")


class HygonProbe:
    """Probe of Hygon DCUs; lists every DCU in one call."""

    name = TOOL

    def __init__(self, tool: Tool | None = None) -> None:
        self._tool = tool or Tool(*HY_SMI)

    def present(self) -> bool:
        """See AcceleratorProbe."""
        return bool(self._tool.found())

    def read(self) -> AcceleratorsReading:
        """See AcceleratorProbe."""
        return parse_summary(self._tool.run())


def parse_summary(text: str) -> AcceleratorsReading:
    """Return what ``hy-smi`` says. Raises UnreadableOutputError."""
    head: list[str] = []
    devices = []
    for line in plain(text).splitlines():
        words = line.split()
        if words[:1] and words[0] in _DEVICES and "Temp" in words:
            head = words
        elif head and len(words) == len(head) and words[0].isdecimal():
            devices.append(_device(dict(zip(head, words, strict=True)), head[0]))
    if not head:
        raise UnreadableOutputError(TOOL, text)
    return AcceleratorsReading(tool=TOOL, devices=tuple(devices))


def _device(row: dict[str, str], kind: str) -> AcceleratorReading:
    index = count(row[kind])
    return AcceleratorReading(
        vendor="hygon",
        id=str(index) if index is not None else row[kind][:20],
        name=f"Hygon {kind}",
        memory_used_ratio=percent(row.get("VRAM%", "")),
        temperature_c=number(row.get("Temp", "")),
        power_w=number(row.get("AvgPwr", "")),
        busy_ratio=percent(row.get(f"{kind}%", "")),
    )
