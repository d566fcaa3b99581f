"""Injection effects: which conditions each kind of injection can cause; others found are real."""

from collections.abc import Mapping
from types import MappingProxyType

from everstep_agent.injections.specs import (
    EccSpec,
    GpuSpec,
    HangSpec,
    KernelSpec,
    LinkDownSpec,
    LinkErrorsSpec,
    LinkSpec,
    LostSpec,
    Spec,
    TemperatureSpec,
    ThrottleSpec,
    XidSpec,
)
from everstep_common.judging.findings import Finding

# Conditions that an injection causes on the very component that it is injected into.
ON_IT: Mapping[type, frozenset[str]] = MappingProxyType(
    {
        EccSpec: frozenset(
            {"GpuEccUncorrected", "GpuEccCorrectedRate", "GpuEccCorrectedStorm", "GpuSramThreshold"}
        ),
        TemperatureSpec: frozenset({"GpuTemperatureHigh"}),
        ThrottleSpec: frozenset({"GpuHardwareSlowdown", "GpuPowerBrake", "GpuThermalSlowdown"}),
        LostSpec: frozenset({"GpuLost", "GpuMissing"}),
        LinkDownSpec: frozenset(
            {"LinkDown", "LinkSlow", "LinkDropped", "LinkFlapping", "LinkBounced"}
        ),
        HangSpec: frozenset({"DriverHang"}),
    }
)
# Conditions that an injection causes on a component that stands for several, such as all GPUs.
BESIDE_IT: Mapping[type, frozenset[str]] = MappingProxyType(
    {
        LostSpec: frozenset({"GpuCountMismatch"}),
        LinkDownSpec: frozenset({"LinkMissing"}),
    }
)
_COUNTED = ("Ib", "Rdma", "Ethernet", "LinkCounter")


def component_of(spec: Spec) -> str:
    """Return what an injection is about; empty for kernel lines and training processes."""
    if isinstance(spec, GpuSpec):
        return f"gpu/{spec.pci}"
    if isinstance(spec, LinkSpec):
        return f"link/{spec.link}"
    return "driver/nvidia" if isinstance(spec, HangSpec) else ""


def counters_of(spec: Spec) -> str:
    """Return the prefix of the counters that an injection touches; empty for none."""
    touches = isinstance(spec, EccSpec | LinkErrorsSpec)
    return f"{component_of(spec)}/" if touches else ""


def may_cause(spec: Spec, finding: Finding) -> bool:
    """Return whether an injection can be what caused a finding."""
    if isinstance(spec, XidSpec | KernelSpec):
        # A kernel line that was injected is marked as such when it enters the kernel log.
        return finding.injected
    if finding.condition in BESIDE_IT.get(type(spec), ()):
        return True
    if finding.component != component_of(spec):
        return False
    if isinstance(spec, LinkErrorsSpec):
        return finding.condition.startswith(_COUNTED)
    return finding.condition in ON_IT.get(type(spec), ())
