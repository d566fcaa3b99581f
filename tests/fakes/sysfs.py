"""A GPU node as sysfs shows it: PCI tree, HCAs with their counters, Ethernet, bonds.

Files have the names and the format of the kernel (drivers/infiniband/core/sysfs.c, net-sysfs.c,
bonding). Setters write into the files in place, as descriptors that are kept open must see it.
"""

import shutil
from pathlib import Path

from fakes.sysfs_counters import COUNTERS, HW_COUNTERS, STATISTICS

_STATES = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}
_RATES = {800: "4X XDR", 400: "4X NDR", 200: "4X HDR", 100: "4X EDR", 56: "4X FDR", 10: "4X SDR"}


class FakeNode:
    """A node of 2 NUMA nodes; every GPU shares a PCIe switch with the HCA of the same number.

    ``root`` becomes the root of sysfs; ``root/dev`` holds the device files.
    """

    def __init__(
        self, root: Path, hcas: int = 8, gpus: int = 8, link_layer: str = "InfiniBand"
    ) -> None:
        self.root = root
        self.dev = root / "dev"
        self._layer = link_layer
        for folder in ("class/net", "class/infiniband", "bus/pci/devices"):
            (root / folder).mkdir(parents=True)
        (root / "class/net/bonding_masters").write_text("\n")
        pairs = max(hcas, gpus, 1)
        for number in range(pairs):
            numa = 0 if number * 2 < pairs else 1
            if number < gpus:
                self._pci(self.gpu_pci(number), self._switch(number), "0x030200", "0x10de", numa)
            if number < hcas:
                self._pci(self.hca_pci(number), self._switch(number), "0x020700", "0x15b3", numa)
                self.add_hca(f"mlx5_{number}", self.hca_pci(number))
        self.add_interface("lo", kind=772, up=True)

    # --- PCI -------------------------------------------------------------------------------------

    @staticmethod
    def gpu_pci(number: int) -> str:
        """Return the PCI address of a GPU."""
        return f"0000:{_bus(number) + 3:02x}:00.0"

    @staticmethod
    def hca_pci(number: int) -> str:
        """Return the PCI address of an HCA."""
        return f"0000:{_bus(number) + 4:02x}:00.0"

    def _switch(self, number: int) -> Path:
        """Return the folder of the upstream port of a switch."""
        bus = _bus(number)
        complex_ = self.root / f"devices/pci0000:{bus:02x}"
        return complex_ / f"0000:{bus:02x}:01.0" / f"0000:{bus + 1:02x}:00.0"

    def _pci(self, address: str, switch: Path, klass: str, vendor: str, numa: int) -> Path:
        bus = int(switch.name.split(":")[1], 16) + 1
        # The function behind a downstream port of its own.
        device = switch / f"0000:{bus:02x}:{int(address.split(':')[1], 16) % 16:02x}.0" / address
        device.mkdir(parents=True)
        for name, text in (("class", klass), ("vendor", vendor), ("numa_node", numa)):
            _write(device / name, text)
        for place in (device, device.parent):
            for name in ("current", "max"):
                _write(place / f"{name}_link_width", 16)
                _write(place / f"{name}_link_speed", "32.0 GT/s PCIe")
        for bridge in (device.parent, switch, switch.parent):
            if not (bridge / "class").exists():
                _write(bridge / "class", "0x060400")
                self._link(self.root / f"bus/pci/devices/{bridge.name}", bridge)
        self._link(self.root / f"bus/pci/devices/{address}", device)
        return device

    def _link(self, path: Path, target: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(target)

    # --- InfiniBand ------------------------------------------------------------------------------

    def add_hca(
        self, name: str, pci: str, *, board: str = "MT_0000000838", rate: int = 400
    ) -> Path:
        """Add an HCA of one port, which is up, on a PCI function that is there."""
        device = (self.root / f"bus/pci/devices/{pci}").resolve()
        folder = device / "infiniband" / name
        number = len(list((self.root / "class/infiniband").iterdir()))
        for file, text in (
            ("node_guid", f"b83f:d203:0012:{number:04x}"),
            ("fw_ver", "28.39.2048"),
            ("board_id", board),
            ("hca_type", "MT4129"),
            ("node_type", "1: CA"),
            ("ports/1/link_layer", self._layer),
            ("ports/1/lid", f"0x{number + 1:x}"),
            ("ports/1/sm_lid", "0x1"),
            *((f"ports/1/counters/{counter}", 0) for counter in COUNTERS),
            *((f"ports/1/hw_counters/{counter}", 0) for counter in HW_COUNTERS),
        ):
            _write(folder / file, text)
        self._link(folder / "device", device)
        self._link(self.root / f"class/infiniband/{name}", folder)
        verbs = self.root / f"class/infiniband_verbs/uverbs{number}"
        _write(verbs / "ibdev", name)
        _write(self.dev / f"infiniband/uverbs{number}", "")
        self.set_port(name)
        self.set_rate(name, rate)
        return folder

    def port(self, hca: str) -> Path:
        """Return the folder of the port of an HCA."""
        return self.root / f"class/infiniband/{hca}/ports/1"

    def set_port(self, hca: str, state: str = "ACTIVE", physical: str = "5: LinkUp") -> None:
        """Let a port be ACTIVE, INIT (no subnet manager) or DOWN."""
        if state == "DOWN" and physical == "5: LinkUp":
            physical = "2: Polling"
        _write(self.port(hca) / "state", f"{_STATES[state]}: {state}")
        _write(self.port(hca) / "phys_state", physical)

    def set_rate(self, hca: str, gbits: int) -> None:
        """Let a port run at a rate."""
        _write(self.port(hca) / "rate", f"{gbits} Gb/sec ({_RATES.get(gbits, '2X NDR')})")

    def set_counter(self, hca: str, name: str, value: int | str) -> None:
        """Let a counter or hw_counter of a port have a value, or a text that is none."""
        kind = "counters" if name in COUNTERS else "hw_counters"
        _write(self.port(hca) / kind / name, value)

    def set_pcie(self, pci: str, lanes: int = 16, rate: str = "32.0 GT/s PCIe") -> None:
        """Let the PCIe link of a card have so many lanes and a rate."""
        _write(self.root / f"bus/pci/devices/{pci}/current_link_width", lanes)
        _write(self.root / f"bus/pci/devices/{pci}/current_link_speed", rate)

    def set_temperature(self, pci: str, celsius: float, label: str = "Module0") -> None:
        """Let the sensor of a card, which is critical at 105 degrees, show a temperature."""
        hwmon = self.root / f"bus/pci/devices/{pci}/hwmon/hwmon0"
        sensor = "temp2" if label.startswith("Module") else "temp1"
        _write(hwmon / f"{sensor}_input", int(celsius * 1000))
        _write(hwmon / f"{sensor}_label", label)
        _write(hwmon / f"{sensor}_crit", 105_000)

    def remove_hca(self, hca: str) -> None:
        """Let an HCA vanish from the bus."""
        link = self.root / f"class/infiniband/{hca}"
        folder = link.resolve()
        link.unlink()
        shutil.rmtree(folder)

    def set_device_file(self, number: int, there: bool) -> None:
        """Let udev make or remove /dev/infiniband/uverbsN."""
        path = self.dev / f"infiniband/uverbs{number}"
        if there:
            path.touch()
        else:
            path.unlink()

    # --- Ethernet --------------------------------------------------------------------------------

    def add_interface(
        self, name: str, *, kind: int = 1, up: bool = True, speed: int = -1, pci: str = ""
    ) -> Path:
        """Add an interface; with a PCI address it is hardware, else virtual."""
        folder = self.root / f"class/net/{name}"
        for file, text in (
            ("type", kind),
            ("address", "52:54:00:12:34:56"),
            ("mtu", 1500),
            ("duplex", "full"),
            ("carrier_down_count", 0),
            *((f"statistics/{counter}", 0) for counter in STATISTICS),
        ):
            _write(folder / file, text)
        if pci:
            self._link(folder / "device", (self.root / f"bus/pci/devices/{pci}").resolve())
        self.set_link(name, up)
        self.set_interface(name, "speed", speed)
        return folder

    def add_ethernet(self, name: str, *, number: int = 0, speed: int = 25_000) -> Path:
        """Add an Ethernet card on the first root complex, and its interface."""
        pci = f"0000:{0x0A + number:02x}:00.0"
        port = self.root / f"devices/pci0000:00/0000:00:{number + 1:02x}.0"
        if not port.exists():
            self._pci(pci, port / "0000:01:00.0", "0x020000", "0x8086", 0)
        return self.add_interface(name, speed=speed, pci=pci)

    def set_link(self, name: str, up: bool) -> None:
        """Let the link of an interface be up or down."""
        _write(self.root / f"class/net/{name}/operstate", "up" if up else "down")
        _write(self.root / f"class/net/{name}/carrier", int(up))
        _write(self.root / f"class/net/{name}/flags", "0x1003")

    def set_interface(self, name: str, file: str, value: int | str) -> None:
        """Write "speed", "duplex", "statistics/rx_errors" … of an interface."""
        _write(self.root / f"class/net/{name}/{file}", value)

    def add_bond(self, name: str, slaves: list[str], mode: str = "802.3ad 4") -> None:
        """Make a bond of interfaces that are there."""
        self.add_interface(name, speed=25_000 * len(slaves))
        bonding = self.root / f"class/net/{name}/bonding"
        _write(bonding / "mode", mode)
        _write(bonding / "slaves", " ".join(slaves))
        _write(bonding / "mii_status", "up")
        _write(bonding / "ad_aggregator", 1)
        _write(bonding / "active_slave", "" if mode.startswith("802") else slaves[0])
        for slave in slaves:
            self.set_slave(slave)

    def set_slave(self, name: str, *, up: bool = True, aggregator: int = 1) -> None:
        """Let a slave be up or down, in an aggregator of its bond."""
        folder = self.root / f"class/net/{name}/bonding_slave"
        _write(folder / "mii_status", "up" if up else "down")
        _write(folder / "ad_aggregator_id", aggregator)


def _bus(number: int) -> int:
    return 0x10 * (number + 1)


def _write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
