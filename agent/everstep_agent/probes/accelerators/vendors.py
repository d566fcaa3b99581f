"""Accelerator vendors: what shows that a node has devices of one; its probe is imported only then.

Most nodes have devices of one vendor or of none, and the agent is to stay small.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from everstep_agent.detectors.accelerators.reading import AcceleratorsReading
from everstep_agent.probes.accelerators.probe import AcceleratorProbe

# Tools by name, and where their vendors install them beside PATH: Huawei's by the documentation of
# its driver; Intel's packages and Kunlunxin's; the user space of Hygon's driver, and its toolkit.
NPU_SMI = ("npu-smi", ("/usr/local/bin", "/usr/local/sbin"))
XPU_SMI = ("xpu-smi", ("/opt/xpum/bin", "/usr/local/bin"))
HY_SMI = ("hy-smi", ("/opt/hyhal/bin", "/opt/dtk/bin"))
_AMD = "0x1002"


def command_path(name: str, folders: tuple[str, ...], path: str | None = None) -> str:
    """Return where a command is, by PATH if none is given; empty when it is not installed."""
    path = os.environ.get("PATH", os.defpath) if path is None else path
    return shutil.which(name, path=os.pathsep.join((path, *folders))) or ""


class LazyProbe:
    """Probe that is imported at the first sign of its vendor's devices."""

    def __init__(
        self, name: str, has_sign: Callable[[], bool], make: Callable[[], AcceleratorProbe]
    ) -> None:
        self.name = name
        self._has_sign = has_sign
        self._make = make
        self._probe: AcceleratorProbe | None = None

    def present(self) -> bool:
        """See AcceleratorProbe."""
        if self._probe is None and not self._has_sign():
            return False
        return self._made().present()

    def read(self) -> AcceleratorsReading:
        """See AcceleratorProbe."""
        return self._made().read()

    def _made(self) -> AcceleratorProbe:
        if self._probe is None:
            self._probe = self._make()
        return self._probe


def accelerator_probes(sysfs: Path) -> tuple[AcceleratorProbe, ...]:
    """Return the probes; NVIDIA GPUs have their own."""
    return (
        LazyProbe("amd", lambda: _has_amd_card(sysfs), lambda: _amd(sysfs)),
        LazyProbe(NPU_SMI[0], lambda: bool(command_path(*NPU_SMI)), _ascend),
        LazyProbe(XPU_SMI[0], lambda: bool(command_path(*XPU_SMI)), _xpu_smi),
        LazyProbe(HY_SMI[0], lambda: bool(command_path(*HY_SMI)), _hygon),
    )


def _has_amd_card(sysfs: Path) -> bool:
    """Return whether a graphics card is AMD's; by which driver, its probe looks."""
    for vendor in (sysfs / "class/drm").glob("card*/device/vendor"):
        try:
            if vendor.read_text(errors="replace").strip() == _AMD:
                return True
        except OSError:
            continue
    return False


def _amd(sysfs: Path) -> AcceleratorProbe:
    from everstep_agent.probes.accelerators.amd_smi import AmdProbe
    from everstep_agent.probes.accelerators.amd_sysfs import AmdSysfsProbe

    return AmdProbe(AmdSysfsProbe(sysfs))


def _ascend() -> AcceleratorProbe:
    from everstep_agent.probes.accelerators.ascend import AscendProbe

    return AscendProbe()


def _xpu_smi() -> AcceleratorProbe:
    from everstep_agent.probes.accelerators.xpu_smi import XpuSmiProbe

    return XpuSmiProbe()


def _hygon() -> AcceleratorProbe:
    from everstep_agent.probes.accelerators.hygon import HygonProbe

    return HygonProbe()
