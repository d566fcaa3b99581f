"""Accelerator probe list: one probe for each vendor tool that the agent knows."""

from pathlib import Path

from everstep_agent.probes.accelerators.amd_smi import AmdProbe
from everstep_agent.probes.accelerators.amd_sysfs import AmdSysfsProbe
from everstep_agent.probes.accelerators.ascend import AscendProbe
from everstep_agent.probes.accelerators.hygon import HygonProbe
from everstep_agent.probes.accelerators.probe import AcceleratorProbe
from everstep_agent.probes.accelerators.xpu_smi import XpuSmiProbe


def accelerator_probes(sysfs: Path) -> tuple[AcceleratorProbe, ...]:
    """Return the probes; NVIDIA GPUs have their own."""
    return (AmdProbe(AmdSysfsProbe(sysfs)), AscendProbe(), XpuSmiProbe(), HygonProbe())
