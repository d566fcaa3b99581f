"""Network probe: Ethernet interfaces, their statistics, and bonds, from sysfs."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_agent.detectors.links.bonds import BondReading, BondSlave
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.probes.links.pci import is_virtual_function, numa_node, pci_address
from everstep_agent.probes.links.sysfs_file import Descriptors, SysfsFile, names_in, text_of

# include/uapi/linux/if_arp.h
_ARPHRD_LOOPBACK = "772"
_ARPHRD_INFINIBAND = "32"
# include/uapi/linux/if.h
_IFF_UP = 1
_HEX = re.compile(r"0x[0-9a-f]{1,8}\Z")
_NVIDIA_VENDOR = "0x10de"
# PCI base class 03: display controllers, 3D controllers among them.
_DISPLAY_CLASS = "0x03"
_STATISTICS = (
    "rx_errors",
    "tx_errors",
    "rx_crc_errors",
    "rx_dropped",
    "tx_dropped",
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_bytes",
    "tx_bytes",
)
# Faster than any link: a higher speed in a file of sysfs is an error.
_MEGABITS_MAX = 10_000_000
# Facts that only a driver reload or a new name changes.
_FACTS_LOOKS = 60


@dataclass(frozen=True, slots=True)
class _Interface:
    """An interface: what is known of it, and the files that are read again and again."""

    known: LinkReading
    folder: str
    operstate: SysfsFile
    carrier: SysfsFile
    speed: SysfsFile
    duplex: SysfsFile

    def close(self) -> None:
        for file in (self.operstate, self.carrier, self.speed, self.duplex):
            file.close()


class NetworkProbe:
    """Reads every interface; of those that are hardware or bonds, also what they count."""

    def __init__(self, sysfs: str, required: Iterable[str] = ()) -> None:
        self._folder = f"{sysfs}/class/net"
        self._required = frozenset(required)
        self._descriptors = Descriptors()
        self._names: list[str] = []
        self._interfaces: dict[str, _Interface] = {}
        self._looks = 0

    def read(self) -> tuple[LinkReading, ...]:
        """Return the state of every interface. Raises OSError when sysfs cannot be read."""
        names = names_in(self._folder)
        if names != self._names or self._looks % _FACTS_LOOKS == 0:
            self._find(names)
        self._looks += 1
        return tuple(
            _read_state(interface) if self._is_followed(interface) else interface.known
            for interface in self._interfaces.values()
        )

    def read_counters(self) -> tuple[CountersReading, ...]:
        """Return the statistics of the interfaces that are hardware."""
        return tuple(
            _read_counters(interface)
            for interface in self._interfaces.values()
            if interface.known.watched
        )

    def read_bonds(self) -> tuple[BondReading, ...]:
        """Return every bond that ``read`` found."""
        return tuple(
            read_bond(self._folder, name)
            for name, interface in self._interfaces.items()
            if interface.known.kind == "bond"
        )

    def _is_followed(self, interface: _Interface) -> bool:
        """Return whether every look reads it; hundreds may belong to containers."""
        return interface.known.kind != "virtual" or interface.known.name in self._required

    def _find(self, names: list[str]) -> None:
        for interface in self._interfaces.values():
            interface.close()
        self._names = names
        self._interfaces = {
            # Also bonding_masters is there, which is a file.
            name: self._open(name)
            for name in names
            if os.path.isdir(f"{self._folder}/{name}")
        }

    def _open(self, name: str) -> _Interface:
        folder = f"{self._folder}/{name}"
        known = _facts(folder, name)
        kept = self._descriptors if known.kind != "virtual" else None
        files = (
            SysfsFile(f"{folder}/{file}", kept)
            for file in ("operstate", "carrier", "speed", "duplex")
        )
        made = _Interface(known, folder, *files)
        return replace(made, known=_read_state(made))


def nvidia_gpus_on_bus(sysfs: Path) -> int:
    """Return how many NVIDIA display or 3D controllers answer on the PCI bus."""
    folder = f"{sysfs}/bus/pci/devices"
    found = 0
    for name in names_in(folder):
        if text_of(f"{folder}/{name}/vendor") == _NVIDIA_VENDOR:
            found += (text_of(f"{folder}/{name}/class") or "").startswith(_DISPLAY_CLASS)
    return found


def _facts(folder: str, name: str) -> LinkReading:
    device = f"{folder}/device"
    return LinkReading(
        name=name,
        kind=_kind(folder),
        up=None,
        address=text_of(f"{folder}/address") or "",
        pci=pci_address(device),
        numa_node=numa_node(device),
    )


def _kind(folder: str) -> str:
    kind = text_of(f"{folder}/type")
    if kind == _ARPHRD_LOOPBACK:
        return "loopback"
    # IP over InfiniBand rides on a port that is listed itself.
    if kind == _ARPHRD_INFINIBAND:
        return "ipoib"
    if os.path.isdir(f"{folder}/bonding"):
        return "bond"
    device = f"{folder}/device"
    if not os.path.exists(device) or is_virtual_function(device):
        return "virtual"
    return "ethernet"


def _read_state(interface: _Interface) -> LinkReading:
    known = interface.known
    state = interface.operstate.text_or_none()
    up = _is_up(interface, state) if state else None
    # Neither speed nor duplex of a link that is down can even be read.
    hardware = up and known.watched
    return LinkReading(
        name=known.name,
        kind=known.kind,
        up=up,
        speed_bits_per_s=_speed(interface.speed) if hardware else 0,
        address=known.address,
        detail=_detail(interface.folder, state, up),
        duplex=_duplex(interface.duplex) if hardware else "",
        pci=known.pci,
        numa_node=known.numa_node,
    )


def _detail(folder: str, state: str | None, up: bool | None) -> str:
    if not state:
        return "operstate cannot be read"
    flags = text_of(f"{folder}/flags") if up is False else None
    if flags is not None and _HEX.match(flags) and not int(flags, 16) & _IFF_UP:
        return f"operstate {state[:40]}, switched off by an administrator"
    return f"operstate {state[:40]}"


def _is_up(interface: _Interface, state: str) -> bool:
    # Drivers without link detection (loopback, tunnels) say "unknown" and have a carrier.
    return state == "up" or (state == "unknown" and interface.carrier.text_or_none() == "1")


def _speed(file: SysfsFile) -> int:
    """Return bits per second; unconfigured and virtual links have the speed -1."""
    try:
        megabits = file.number()
    except (OSError, ValueError):
        return 0
    return megabits * 1_000_000 if megabits <= _MEGABITS_MAX else 0


def _duplex(file: SysfsFile) -> str:
    text = file.text_or_none()
    return text if text in ("full", "half") else ""


def _read_counters(interface: _Interface) -> CountersReading:
    values: dict[str, int] = {}
    blind: list[str] = []
    names = {name: f"statistics/{name}" for name in _STATISTICS}
    names["carrier_down_count"] = "carrier_down_count"
    for name, path in names.items():
        try:
            values[name] = SysfsFile(f"{interface.folder}/{path}").number()
        except FileNotFoundError:
            continue  # older kernels count no losses of the carrier
        except (OSError, ValueError):
            blind.append(name)
    return CountersReading(link=interface.known.name, values=values, blind=tuple(blind))


# Modes with one slave that carries the traffic; the others use all of them.
_ONE_ACTIVE = ("active-backup", "balance-tlb", "balance-alb")


def read_bond(net: str, name: str) -> BondReading:
    """Return a bond. ``net`` is the folder of all interfaces."""
    folder = f"{net}/{name}/bonding"
    # "802.3ad 4": the name and the number of the mode.
    mode = (text_of(f"{folder}/mode") or "").partition(" ")[0]
    active = text_of(f"{folder}/active_slave") if mode in _ONE_ACTIVE else None
    slaves = text_of(f"{folder}/slaves")
    return BondReading(
        name=name,
        mode=mode,
        slaves=None if slaves is None else tuple(_slave(net, one) for one in slaves.split()),
        active_slave=active,
        aggregator=(text_of(f"{folder}/ad_aggregator") or "") if mode == "802.3ad" else "",
    )


def _slave(net: str, name: str) -> BondSlave:
    if "/" in name:
        return BondSlave(name=name, up=None)
    folder = f"{net}/{name}"
    status = text_of(f"{folder}/bonding_slave/mii_status")
    return BondSlave(
        name=name,
        up=None if not status else status == "up",
        mtu=_number(text_of(f"{folder}/mtu")),
        speed_bits_per_s=_number(text_of(f"{folder}/speed")) * 1_000_000,
        aggregator=text_of(f"{folder}/bonding_slave/ad_aggregator_id") or "",
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else 0
