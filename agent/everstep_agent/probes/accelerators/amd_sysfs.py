"""AMD GPU probe over sysfs: reads the files of the amdgpu driver.

Written for the files that the kernel's documentation of amdgpu describes (6.8: hwmon, RAS, memory
and busy counters); it was not run on the hardware. Wakes no device and needs no library.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_agent.probes.accelerators.text import count, number, percent

_VENDOR = "0x1002"
_CARD = re.compile(r"card\d+")
_ERRORS = re.compile(r"^(ue|ce): (\d{1,18})$", re.MULTILINE)
# A file of sysfs is a page at most.
_FILE_BYTES_MAX = 4096
# What a device that is gone or is being reset refuses to tell.
_VITAL = ("gpu_busy_percent", "mem_info_vram_used")


class AmdSysfsProbe:
    """Probe of every card that the amdgpu driver has. ``sysfs`` is where /sys is."""

    name = "amdgpu"

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._sysfs = sysfs

    def present(self) -> bool:
        """See AcceleratorProbe."""
        return any(True for _ in self._cards())

    def read(self) -> AcceleratorsReading:
        """See AcceleratorProbe. Raises only what listing the cards does."""
        version = _text(self._sysfs / "module/amdgpu/version")
        devices = tuple(_read_card(card, version) for card in self._cards())
        return AcceleratorsReading(tool=self.name, version=version, devices=devices)

    def _cards(self) -> Iterator[Path]:
        """Yield the device folders; partitions of a device are cards without a vendor."""
        folder = self._sysfs / "class/drm"
        try:
            names = sorted(name for name in os.listdir(folder) if _CARD.fullmatch(name))
        except FileNotFoundError:
            return
        for name in names:
            device = folder / name / "device"
            if _text(device / "vendor") == _VENDOR and "DRIVER=amdgpu" in _text(device / "uevent"):
                yield device


def _read_card(device: Path, driver: str) -> AcceleratorReading:
    pci = device.resolve().name.lower()
    answers = [_answer(device / name) for name in _VITAL]
    hwmon = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon/none")
    temperature, limit = _temperature(hwmon)
    total, used = count(_text(device / "mem_info_vram_total")), count(answers[1])
    errors = _errors(device / "ras")
    # Average on most devices; MI300 has the present power only.
    power = _text(hwmon / "power1_average") or _text(hwmon / "power1_input")
    power_uw = number(power)
    return AcceleratorReading(
        vendor="amd",
        id=pci,
        name=_text(device / "product_name") or f"AMD GPU {_text(device / 'device')}".strip(),
        serial=_text(device / "unique_id") or _text(device / "serial_number"),
        pci=pci,
        driver=driver,
        firmware=_text(device / "vbios_version"),
        memory_bytes=total,
        memory_used_ratio=used / total if total and used is not None and used <= total else None,
        temperature_c=temperature,
        temperature_limit_c=limit,
        power_w=power_uw / 1e6 if power_uw is not None else None,
        busy_ratio=percent(answers[0]),
        ecc_corrected=errors.get("ce"),
        ecc_uncorrected=errors.get("ue"),
        pcie_width=count(_text(device / "current_link_width")),
        pcie_width_max=count(_text(device / "max_link_width")),
        error=_refusal(answers),
    )


def _temperature(hwmon: Path) -> tuple[float | None, float | None]:
    """Return the sensor nearest to its critical temperature, in degrees, with that temperature."""
    found: list[tuple[float, float | None]] = []
    for file in sorted(hwmon.glob("temp[0-9]_input")):
        now = number(_text(file))
        limit = number(_text(file.with_name(file.name.replace("_input", "_crit"))))
        # Sensors that a device lacks read 0, and so do limits that the firmware does not give.
        if now:
            found.append((now / 1000, limit / 1000 if limit else None))
    limited = [(now, limit) for now, limit in found if limit is not None]
    if limited:
        return min(limited, key=lambda pair: pair[1] - pair[0])
    return max(found, default=(None, None), key=lambda pair: pair[0])


def _errors(ras: Path) -> dict[str, int]:
    """Return the sums over all blocks; nothing of it while one of them cannot be asked."""
    sums: dict[str, int] = {}
    for file in sorted(ras.glob("*_err_count")):
        found = _ERRORS.findall(_text(file))
        if not found:
            return {}
        for kind, errors in found:
            sums[kind] = sums.get(kind, 0) + int(errors)
    return sums


def _answer(file: Path) -> str:
    """Return what a file says; "!" and the reason when the driver refuses to."""
    try:
        with file.open("rb") as opened:
            return opened.read(_FILE_BYTES_MAX).decode(errors="replace").strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"!{file.name}: {error.strerror or error}"


def _text(file: Path) -> str:
    answer = _answer(file)
    return "" if answer.startswith("!") else answer


def _refusal(answers: list[str]) -> str:
    """Return why the device does not answer: no file that exists can be read."""
    said = [answer for answer in answers if answer]
    refused = [answer[1:] for answer in said if answer.startswith("!")]
    return refused[0] if refused and len(refused) == len(said) else ""
