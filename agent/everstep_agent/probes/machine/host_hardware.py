"""Hardware probe: frequency governors, thermal throttling and memory errors, from sysfs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.detectors.host.cpu import CpuReading
from everstep_agent.detectors.host.edac import DimmReading
from everstep_agent.probes.machine.kernel_files import names_in, number_in, text_of


@dataclass(frozen=True, slots=True)
class HardwareReading:
    """Hardware facts that change slowly. ``edac`` is False where no driver counts errors."""

    cpus: CpuReading
    modules: tuple[DimmReading, ...]
    edac: bool


def read_hardware(sysfs: Path) -> HardwareReading:
    """Read once. What is not there is left out."""
    controllers = sysfs / "devices/system/edac/mc"
    names = [name for name in names_in(controllers) if name.startswith("mc")]
    modules = tuple(module for name in names for module in _modules(name, controllers / name))
    return HardwareReading(_cpus(sysfs / "devices/system/cpu"), modules, bool(names))


def _cpus(folder: Path) -> CpuReading:
    policies = folder / "cpufreq"
    governors = Counter(
        governor
        for name in names_in(policies)
        if name.startswith("policy") and (governor := text_of(policies / name / "scaling_governor"))
    )
    throttled = [
        count
        for name in names_in(folder)
        if name.startswith("cpu") and name[3:].isdecimal()
        for kind in ("core", "package")
        if (count := number_in(folder / name / f"thermal_throttle/{kind}_throttle_count"))
        is not None
    ]
    # Every CPU of a package shows the package's count: the sum grows when any of them does.
    return CpuReading(
        governors=tuple(sorted(governors.items())), throttled=sum(throttled) if throttled else None
    )


def _modules(name: str, controller: Path) -> Iterator[DimmReading]:
    """Yield the modules (dimmN, or rankN), and what the controller could not attribute to one."""
    for entry in names_in(controller):
        if entry.startswith(("dimm", "rank")) and entry[4:].isdecimal():
            reading = _counts(
                controller / entry, f"{name}/{entry}", "dimm_ce_count", "dimm_ue_count"
            )
            if reading is not None:
                label = text_of(controller / entry / "dimm_label") or reading.name
                yield DimmReading(reading.name, label, reading.corrected, reading.uncorrected)
    rest = _counts(controller, f"{name}/unknown", "ce_noinfo_count", "ue_noinfo_count")
    if rest is not None:
        yield rest


def _counts(folder: Path, name: str, corrected: str, uncorrected: str) -> DimmReading | None:
    ce, ue = number_in(folder / corrected), number_in(folder / uncorrected)
    if ce is None and ue is None:
        return None
    return DimmReading(name, name, max(0, ce or 0), max(0, ue or 0))
