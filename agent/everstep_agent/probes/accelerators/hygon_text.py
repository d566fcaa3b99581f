"""hy-smi output: parses the text of Hygon's tool into readings of DCUs."""

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_agent.probes.accelerators.text import (
    UnreadableOutputError,
    count,
    number,
    percent,
    plain,
)

TOOL = "hy-smi"
# What the device is called: DCU up to DTK 24, HCU in newer versions.
_DEVICES = ("DCU", "HCU")


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
