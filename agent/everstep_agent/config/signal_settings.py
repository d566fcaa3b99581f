"""Signal settings: thresholds, how far automation may go, and what to do about single Xids."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from everstep_agent.detectors.accelerators.reading import AcceleratorLimits
from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.host.limits import HostLimits
from everstep_agent.detectors.host.service_limits import ServiceLimits
from everstep_agent.detectors.kernel.gpu_faults.gpu_verdict import XidOverride
from everstep_agent.detectors.links.ethernet import EthernetLimits
from everstep_agent.detectors.links.infiniband_limits import InfinibandLimits
from everstep_agent.detectors.links.limits import LinkLimits
from everstep_common.judging.findings import Mode
from everstep_common.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsSettings:
    """The tables under ``[signals]``; docs/signals.md shows every signal with its default."""

    modes: Mapping[str, Mode] = setting(
        factory=dict,
        help='How far automation may go for a condition: "observe", "advise" or "enforce", as '
        'in `LinkSlow = "enforce"`. Those not named keep the default that docs/signals.md'
        " shows.",
    )

    xid: Mapping[str, XidOverride] = setting(
        factory=dict,
        help='What to do about an Xid, overriding the driver and the table: "ignore", "watch",'
        ' "restart_job", "reset_device", "reboot_node" or "repair_hardware", as in `94 = '
        '"ignore"`. The last three make it a fault with which the node cannot train.',
    )

    gpu: GpuLimits = field(default_factory=GpuLimits)
    links: LinkLimits = field(default_factory=LinkLimits)
    infiniband: InfinibandLimits = field(default_factory=InfinibandLimits)
    ethernet: EthernetLimits = field(default_factory=EthernetLimits)
    accelerators: AcceleratorLimits = field(default_factory=AcceleratorLimits)
    host: HostLimits = field(default_factory=HostLimits)
    services: ServiceLimits = field(default_factory=ServiceLimits)

    def problems(self) -> list[str]:
        """Say what is wrong with the values, in the operator's words."""
        found = [_no_condition(name) for name in self.modes if name not in CONDITIONS]
        found += [
            f"signals.xid.{code}: expected the number of an Xid, such as 94"
            for code in self.xid
            if not (code.isascii() and code.isdigit() and len(code) <= 5)
        ]
        return found + self.gpu.problems() + self.host.problems() + self.services.problems()


def _no_condition(name: str) -> str:
    near = difflib.get_close_matches(name, CONDITIONS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return (
        f"signals.modes.{name}: no condition has this name; {hint}docs/signals.md lists them "
        "(the mode of a condition of your own stands in its file)"
    )
