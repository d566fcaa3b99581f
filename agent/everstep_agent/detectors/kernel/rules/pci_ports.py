"""PCI ports: which devices are behind a port, so that its error names the device it is about."""

import re
from collections.abc import Mapping
from dataclasses import replace

from everstep_agent.detectors.kernel.rules.line import pci_address
from everstep_agent.detectors.readings.topology import PciPlace
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

# At boot: "pci 0000:3a:00.0: PCI bridge to [bus 3b-3c]", and of each device "pci 0000:3b:00.0:
# [10de:2330] type 00 class 0x030200". Base classes: 01 storage, 02 network, 03 display, 12
# processing accelerators.
NEEDLES = ("PCI bridge to [bus", "] type 00 class 0x")
_BRIDGE = re.compile(
    r"pci (?P<port>[0-9a-f]{4,8}:[0-9a-f:.]{7}): PCI bridge to "
    r"\[bus (?P<first>[0-9a-f]{2})(?:-(?P<last>[0-9a-f]{2}))?\]"
)
_DEVICE = re.compile(
    r"pci (?P<device>[0-9a-f]{4,8}:[0-9a-f:.]{7}): \[[0-9a-f:]{9}\] type 00 class 0x(?:01|02|03|12)"
)
# A server has some hundred devices; a log of another kind of machine is not remembered whole.
_REMEMBERED_MAX = 4096


class PciPorts:
    """Devices behind ports, as the PCI tree shows them or the kernel told them at boot.

    Devices that are gone from the tree stay remembered: an error may be the reason.
    """

    def __init__(self) -> None:
        self._places: Mapping[str, PciPlace] = {}
        self._behind: dict[str, dict[str, None]] = {}
        self._buses: dict[str, tuple[str, int, int]] = {}
        self._devices: dict[str, None] = {}

    def note_places(self, places: Mapping[str, PciPlace]) -> None:
        """Remember a reading of the PCI tree."""
        if places is self._places:
            return
        self._places = places
        for address, place in places.items():
            for port in place.path[:-1]:
                if len(self._behind) < _REMEMBERED_MAX:
                    self._behind.setdefault(port, {})[address] = None

    def note_line(self, text: str) -> None:
        """Remember what a kernel line of the boot says of a bridge or a device."""
        if len(self._buses) + len(self._devices) >= _REMEMBERED_MAX:
            return
        if bridge := _BRIDGE.search(text):
            first = int(bridge["first"], 16)
            port = pci_address(bridge["port"])
            self._buses[port] = (port[:4], first, int(bridge["last"] or bridge["first"], 16))
        elif device := _DEVICE.search(text):
            self._devices[pci_address(device["device"])] = None

    def behind(self, port: str) -> tuple[str, ...]:
        """Return the devices behind a port; none if it is no port, or nothing is known."""
        found = set(self._behind.get(port, ()))
        if port in self._buses:
            domain, first, last = self._buses[port]
            found |= {
                one
                for one in self._devices
                if one[:4] == domain and first <= int(one[5:7], 16) <= last
            }
        return tuple(sorted(found - {port}))

    def at_device(self, judgement: Judgement) -> Judgement:
        """Return what was said of a port as said of the device behind it."""
        port = judgement.key.component.partition("/")[2]
        devices = self.behind(port)
        if not devices:
            return judgement
        # Functions of one card are one device: "0000:3b:00.0" and "0000:3b:00.1".
        whole = len({device.partition(".")[0] for device in devices}) == 1
        component = f"pcie/{devices[0]}" if whole else judgement.key.component
        if isinstance(judgement, Healthy):
            return Healthy(FindingKey(component, judgement.key.condition), judgement.evidence)
        if not isinstance(judgement, Faulty):
            return judgement
        message = f"{judgement.finding.message}; behind this port: {', '.join(devices)}"
        return Faulty(replace(judgement.finding, component=component, message=message))
