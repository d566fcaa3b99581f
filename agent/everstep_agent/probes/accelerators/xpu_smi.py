"""xpu-smi probe: two vendors' tools have this name, and the output tells whose it is.

Kunlunxin's (Baidu): written for the tool of driver 515.58 (XRE 5.0.21) from PaddlePaddle's
documentation of the P800. Intel's: written for XPU Manager 1.0 to 1.3 from its user guide, and for
2.0 from its reference, which shows no output. Neither was run on the hardware.
"""

from dataclasses import replace
from pathlib import Path

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_agent.probes.accelerators import intel_text, kunlunxin_text
from everstep_agent.probes.accelerators.intel_text import Health, Statistics
from everstep_agent.probes.accelerators.text import MIB, UnreadableOutputError
from everstep_agent.probes.accelerators.tool import Tool
from everstep_agent.probes.accelerators.vendors import XPU_SMI

TOOL = XPU_SMI[0]


class XpuSmiProbe:
    """Probe of devices through xpu-smi, whichever vendor's tool answers.

    Without arguments Kunlunxin's tool lists its devices, and Intel's explains itself (1.x) or lists
    its own (2.x). Nothing else is run before that is known.
    """

    name = TOOL

    def __init__(self, tool: Tool | None = None) -> None:
        self._tool = tool or Tool(*XPU_SMI)
        # The file that was found to be Intel's, and its version: asking again costs a second.
        self._intel: tuple[str, int] | None = None
        self._major = 0
        self._properties: dict[int, dict[str, str]] = {}

    def present(self) -> bool:
        """See AcceleratorProbe."""
        return bool(self._tool.found())

    def read(self) -> AcceleratorsReading:
        """See AcceleratorProbe."""
        file = _identity(self._tool.found())
        if file is not None and file == self._intel:
            return self._read_intel()
        text = self._tool.run()
        if kunlunxin_text.is_kunlunxin(text):
            return kunlunxin_text.parse_summary(text)
        major = intel_text.major_version(text)
        if major is None:
            raise UnreadableOutputError(TOOL, text)
        self._intel, self._major, self._properties = file, major, {}
        return self._read_intel()

    def _read_intel(self) -> AcceleratorsReading:
        listed = intel_text.parse_discovery(self._tool.run("discovery", "-j"))
        if listed.keys() - self._properties.keys():
            text = self._tool.run("discovery", "--dump", intel_text.PROPERTIES)
            self._properties = intel_text.parse_properties(text)
        health: dict[int, Health] = {}
        statistics: dict[int, Statistics] = {}
        if listed:
            health = intel_text.parse_health(self._tool.run("health", "-l"))
            text = self._tool.run(*intel_text.dump_arguments(self._major))
            statistics = intel_text.parse_statistics(text)
        devices = tuple(
            self._device(number, device, health.get(number), statistics.get(number))
            for number, device in sorted(listed.items())
        )
        return AcceleratorsReading(tool="xpu-smi (Intel)", devices=devices)

    def _device(
        self,
        number: int,
        device: AcceleratorReading,
        health: Health | None,
        statistics: Statistics | None,
    ) -> AcceleratorReading:
        properties = self._properties.get(number, {})
        if health is None and statistics is None:
            return replace(device, error="discovered, but in neither health nor statistics")
        health, now = health or Health(), statistics or Statistics()
        total, used = intel_text.memory_bytes(properties), now.memory_used_mib
        return replace(
            device,
            serial=properties.get("Serial Number", device.serial),
            driver=properties.get("Driver Version", ""),
            firmware=properties.get("GFX Firmware Version", ""),
            memory_bytes=total,
            memory_used_ratio=min(1.0, used * MIB / total) if used is not None and total else None,
            temperature_c=now.core_c,
            temperature_limit_c=health.core_limit_c,
            power_w=now.power_w,
            busy_ratio=now.busy_ratio,
            ecc_corrected=now.ecc_corrected,
            ecc_uncorrected=now.ecc_uncorrected,
            health=health.word,
            health_detail=health.detail,
        )


def _identity(path: str) -> tuple[str, int] | None:
    try:
        return (path, Path(path).stat().st_mtime_ns) if path else None
    except OSError:
        return None
