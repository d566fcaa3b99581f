"""Bearing of findings: which of a node's findings can be why ranks there failed or stand still.

One about a device is evidence only for ranks that use the device. One that came long before or
after is none, and one that is older than a generation which has made steps was borne by that.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from everstep_common.judging.findings import Mode, Severity
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import NodeRecord, OpenFinding
from everstep_controller.core.model.state import State

# Components that are one accelerator: "gpu/0000:3b:00.0".
_DEVICE = re.compile(r"(?:gpu|accelerator|pcie)/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_OF_DEVICES = re.compile(r"(?:gpu|accelerator|nvswitch)/|(?:driver|accelerators)/")


@dataclass(frozen=True, slots=True)
class RanksFault:
    """A fault of a job's ranks on a node, as far as findings can be why it came."""

    # When it began, and how long it went on; findings this long before or after count.
    began_ns: int
    until_ns: int
    window_ns: int
    # When the generation was started; 0: it has made no step, so it has borne nothing.
    borne_until_ns: int = 0
    # PCI addresses of the accelerators that its ranks have open; None: nobody has told.
    devices: frozenset[str] | None = None

    def is_near(self, held: OpenFinding) -> bool:
        """Return whether a finding came around the time of the fault, and was not borne before."""
        at_ns = held.since_ns
        near = self.began_ns - self.window_ns <= at_ns <= self.until_ns + self.window_ns
        return near and at_ns >= self.borne_until_ns


def borne_until_ns(job: JobRecord) -> int:
    """Return until when its newest generation has borne findings: it has trained with them."""
    steps, began_ns = job.ledger.steps, job.generation.began_ns
    return began_ns if steps and steps[-1].end_ns > began_ns else 0


def concerns(
    node: NodeRecord, job: JobRecord, held: OpenFinding, devices: frozenset[str] | None
) -> bool | None:
    """Return whether a finding is about the ranks of a job there; None where nobody can tell.

    What is about the host, its network or its disks concerns all of them.
    """
    component = held.finding.key.component
    known = {_address(one.pci_address) for one in node.spec.inventory.accelerators}
    device = _DEVICE.match(component.lower())
    one = _address(device[1]) if device is not None else ""
    if not _OF_DEVICES.match(component) and one not in known:
        return True
    if devices is not None:
        return one in map(_address, devices) if one else bool(devices)
    # A rank takes a device (jobs/devices.py): as many ranks as devices have all of them.
    return True if 0 < len(known) <= job.spec.processes_per_node else None


def _address(pci: str) -> str:
    """Return a PCI address as it is always written: drivers write domains of 4 and of 8 digits."""
    domain, _, rest = pci.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def counting(state: State, node: NodeRecord) -> Iterator[OpenFinding]:
    """Yield the findings about a node that nobody wants only observed."""
    for held in node.health.findings.values():
        finding = held.finding
        mode = state.mode_of(node, finding.condition, finding.mode)
        if held.counts_against_node and mode is not Mode.OBSERVE:
            yield held


def unfit_by_finding(state: State, node: NodeRecord, job: JobRecord, fault: RanksFault) -> str:
    """Return a finding by which ranks cannot train there, in words; "" where there is none.

    Only one that is known to be about them: without one the job is helped as well, just later.
    """
    found = (
        held.finding.message
        for held in counting(state, node)
        if held.finding.severity is Severity.FATAL
        and fault.is_near(held)
        and concerns(node, job, held, fault.devices)
    )
    return next(found, "")
