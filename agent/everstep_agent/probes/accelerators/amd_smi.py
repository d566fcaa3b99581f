"""AMD GPU probe: reads through AMD's SMI library where it is installed, else through sysfs.

The library is asked by a process of its own at each look (amd_smi_child.py says for which version):
the driver may hang it, and the agent's memory stays free of it. Not run on the hardware.
"""

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_agent.probes.accelerators import amd_smi_child
from everstep_agent.probes.accelerators.amd_sysfs import AmdSysfsProbe
from everstep_agent.probes.accelerators.text import UnreadableOutputError, pci_address
from everstep_agent.probes.accelerators.tool import Tool, ToolError

TOOL = "amdsmi"
# What fits a counter of 63 bits; NaN and infinity do not either.
_LARGEST = 2**63
_COMMAND = (sys.executable, "-P", amd_smi_child.__file__)


def _installed() -> bool:
    return importlib.util.find_spec("amdsmi") is not None


class AmdProbe:
    """Probe of AMD GPUs: the library where it answers, else sysfs.

    Lanes and names that it does not tell come from sysfs, and so does everything where it finds no
    driver that it can work with.
    """

    name = "amd"

    def __init__(
        self,
        sysfs: AmdSysfsProbe,
        tool: Tool | None = None,
        installed: Callable[[], bool] = _installed,
        command: tuple[str, ...] = _COMMAND,
    ) -> None:
        self._sysfs = sysfs
        self._tool = tool or Tool(TOOL)
        self._installed = installed
        self._command = command
        self._useless = False

    def present(self) -> bool:
        """See AcceleratorProbe."""
        return self._sysfs.present()

    def read(self) -> AcceleratorsReading:
        """See AcceleratorProbe."""
        files = self._sysfs.read()
        if self._useless or not files.devices or not self._installed():
            return files
        try:
            answers = parse_answer(self._tool.execute(self._command))
        except (ToolError, UnreadableOutputError) as error:
            return replace(files, blind=f"{error}; the files of the driver serve instead")
        self._useless = not answers
        if self._useless:
            return files
        devices = tuple(_merged(device, answers.get(device.pci)) for device in files.devices)
        return replace(files, tool=TOOL, devices=devices)


def parse_answer(text: str) -> dict[str, Mapping[str, object]]:
    """Return the devices by PCI address; none when the library cannot be used.

    Raises UnreadableOutputError.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableOutputError(TOOL, text) from error
    if isinstance(answer, dict) and isinstance(answer.get("absent"), str):
        return {}
    devices = answer.get("devices") if isinstance(answer, dict) else None
    if not isinstance(devices, list):
        raise UnreadableOutputError(TOOL, text)
    found: dict[str, Mapping[str, object]] = {}
    for device in devices:
        if isinstance(device, dict) and (pci := pci_address(str(device.get("pci")))):
            found[pci] = device
    return found


def _merged(device: AcceleratorReading, answer: Mapping[str, object] | None) -> AcceleratorReading:
    """Prefer the library's word, field by field."""
    if answer is None:
        return device

    def number(key: str, known: float | None) -> float | None:
        value = answer.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return known
        return float(value) if abs(value) < _LARGEST else known

    def whole(key: str, known: int | None) -> int | None:
        value = answer.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            return known
        return value if 0 <= value < _LARGEST else known

    def word(key: str, known: str) -> str:
        value = answer.get(key)
        return value[:100] if isinstance(value, str) and value not in ("", "N/A") else known

    temperature = number("temperature_c", None)
    limit = number("temperature_limit_c", None)
    both = temperature is not None and limit is not None
    return replace(
        device,
        name=word("name", device.name),
        serial=word("serial", device.serial),
        driver=word("driver", device.driver),
        memory_bytes=whole("memory_bytes", device.memory_bytes),
        memory_used_ratio=number("memory_used_ratio", device.memory_used_ratio),
        # A temperature and its limit must come from the same sensor.
        temperature_c=temperature if both else device.temperature_c,
        temperature_limit_c=limit if both else device.temperature_limit_c,
        power_w=number("power_w", device.power_w),
        busy_ratio=number("busy_ratio", device.busy_ratio),
        ecc_corrected=whole("ecc_corrected", device.ecc_corrected),
        ecc_uncorrected=whole("ecc_uncorrected", device.ecc_uncorrected),
    )
