"""InfiniBand probe: states and counters of the ports of every HCA, from sysfs."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.infiniband import DeviceFile
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.probes.links.pci import is_virtual_function, numa_node, pci_address
from everstep_agent.probes.links.sysfs_file import Descriptors, SysfsFile, names_in, text_of

# A port has up to 60 counters; these are judged or shown. Names are those of the kernel.
_COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    "port_xmit_wait",
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
)
_HW_COUNTERS = (
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "duplicate_request",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "req_cqe_error",
    "resp_cqe_error",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "rx_icrc_encapsulated",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_write_requests",
    "rx_read_requests",
)
# Facts that change when firmware is updated or a subnet manager takes over.
_FACTS_LOOKS = 30
_RATE = re.compile(r"(\d{1,6}(?:\.\d)?) Gb/sec")


@dataclass(frozen=True, slots=True)
class _Port:
    """A port: what is known of it, and the files that are read again and again."""

    known: LinkReading
    state: SysfsFile
    phys_state: SysfsFile
    rate: SysfsFile
    counters: Mapping[str, SysfsFile]

    def close(self) -> None:
        for file in (self.state, self.phys_state, self.rate, *self.counters.values()):
            file.close()


class InfinibandProbe:
    """Reads every port of every physical function; virtual ones belong to their guests."""

    def __init__(self, sysfs: str, dev: str = "/dev") -> None:
        self._folder = f"{sysfs}/class/infiniband"
        self._verbs = f"{sysfs}/class/infiniband_verbs"
        self._dev = f"{dev}/infiniband"
        self._descriptors = Descriptors()
        self._devices: list[str] = []
        self._ports: dict[str, _Port] = {}
        self._looks = 0

    def read(self) -> tuple[LinkReading, ...]:
        """Return the state of every port. Raises OSError when sysfs itself cannot be read."""
        devices = names_in(self._folder)
        if devices != self._devices or self._looks % _FACTS_LOOKS == 0:
            self._find(devices)
        self._looks += 1
        return tuple(_read_state(port) for port in self._ports.values())

    def read_counters(self) -> tuple[CountersReading, ...]:
        """Return the counters of every port that ``read`` found."""
        return tuple(_read_counters(port) for port in self._ports.values())

    def read_files(self) -> tuple[DeviceFile, ...]:
        """Return which device files there should be, and whether they are there."""
        try:
            there = set(os.listdir(self._dev))
        except FileNotFoundError:
            there = set()
        except OSError:
            return ()
        files = []
        for name in names_in(self._verbs):
            device = text_of(f"{self._verbs}/{name}/ibdev")
            if device is not None:
                path = f"{self._dev}/{name}"
                files.append(DeviceFile(device=device, path=path, there=name in there))
        return tuple(files)

    def _find(self, devices: list[str]) -> None:
        before, self._ports = self._ports, {}
        for device in devices:
            folder = f"{self._folder}/{device}"
            if is_virtual_function(f"{folder}/device"):
                continue
            for port in names_in(f"{folder}/ports"):
                known = _facts(folder, device, port)
                self._ports[known.name] = self._open(known, f"{folder}/ports/{port}", before)
        for name, gone in before.items():
            if name not in self._ports:
                gone.close()
        self._devices = devices

    def _open(self, known: LinkReading, folder: str, before: Mapping[str, _Port]) -> _Port:
        old, kept = before.get(known.name), self._descriptors
        # Some drivers show the counters of the transport for the device, not for its port.
        device = f"{self._folder}/{known.name.partition('/')[0]}"
        counters = {
            name: SysfsFile(f"{place}/{name}", kept)
            for place, wanted in (
                (f"{device}/hw_counters", _HW_COUNTERS),
                (f"{folder}/counters", _COUNTERS),
                (f"{folder}/hw_counters", _HW_COUNTERS),
            )
            for name in _offered(place, wanted)
        }
        if old is not None:
            # The same port: its descriptors go on, for the files that it still has.
            if old.counters.keys() == counters.keys():
                return _Port(known, old.state, old.phys_state, old.rate, old.counters)
            old.close()
        return _Port(
            known,
            SysfsFile(f"{folder}/state", kept),
            SysfsFile(f"{folder}/phys_state", kept),
            SysfsFile(f"{folder}/rate", kept),
            counters,
        )


def _offered(folder: str, wanted: tuple[str, ...]) -> list[str]:
    try:
        there = set(names_in(folder))
    except PermissionError:
        # Each is told as one that cannot be read; all other cards are read.
        return list(wanted)
    return [name for name in wanted if name in there]


def _facts(folder: str, device: str, port: str) -> LinkReading:
    layer = (text_of(f"{folder}/ports/{port}/link_layer") or "InfiniBand").lower()
    build = (text_of(f"{folder}/hca_type"), text_of(f"{folder}/board_id"))
    family = " ".join(part for part in build if part)
    return LinkReading(
        name=f"{device}/{port}",
        kind="roce" if layer == "ethernet" else "infiniband",
        up=None,
        address=text_of(f"{folder}/node_guid") or "",
        family=f"{family} port {port}" if family else "",
        pci=pci_address(f"{folder}/device"),
        numa_node=numa_node(f"{folder}/device"),
        firmware=text_of(f"{folder}/fw_ver") or "",
    )


def _read_state(port: _Port) -> LinkReading:
    state = port.state.text_or_none()
    physical = port.phys_state.text_or_none()
    known = port.known
    return LinkReading(
        name=known.name,
        kind=known.kind,
        up=None if not _is_state(state) else state.startswith("4:"),
        speed_bits_per_s=rate(port.rate.text_or_none() or ""),
        address=known.address,
        detail=_detail(state, physical),
        family=known.family,
        pci=known.pci,
        numa_node=known.numa_node,
        firmware=known.firmware,
    )


def _detail(state: str | None, physical: str | None) -> str:
    detail = f"state {state}, physical state {physical}"[:120]
    # INIT and ARMED: the cable is fine, and the subnet manager is not done or not there.
    waiting = state is not None and state.startswith(("2:", "3:"))
    return f"{detail}; the subnet manager has not activated it" if waiting else detail


def _is_state(state: str | None) -> TypeGuard[str]:
    """Return whether this is a state like "4: ACTIVE"; an empty or damaged file tells nothing."""
    return state is not None and state[:1].isdigit() and state[1:2] == ":"


def _read_counters(port: _Port) -> CountersReading:
    values: dict[str, int] = {}
    blind: list[str] = []
    for name, file in port.counters.items():
        try:
            values[name] = file.number()
        except (OSError, ValueError):
            blind.append(name)
    return CountersReading(link=port.known.name, values=values, blind=tuple(blind))


def rate(text: str) -> int:
    """Return bits per second of "400 Gb/sec (4X NDR)"; 0 when it is anything else."""
    match = _RATE.match(text)
    return int(float(match[1]) * 1e9) if match else 0
