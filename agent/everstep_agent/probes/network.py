"""Network probe: interfaces and InfiniBand ports, from sysfs."""

import re
from collections.abc import Iterator
from pathlib import Path

from everstep_agent.detectors.links import LinkReading

# include/uapi/linux/if_arp.h
_ARPHRD_LOOPBACK = "772"
_ARPHRD_INFINIBAND = "32"
_NVIDIA_VENDOR = "0x10de"
# PCI base class 03: display controllers, 3D controllers among them.
_DISPLAY_CLASS = "0x03"


def read_links(sysfs: Path) -> tuple[LinkReading, ...]:
    """Return every interface and port. Raises OSError when sysfs itself cannot be read."""
    return (*_interfaces(sysfs / "class/net"), *_ports(sysfs / "class/infiniband"))


def nvidia_gpus_on_bus(sysfs: Path) -> int:
    """Return how many NVIDIA display or 3D controllers answer on the PCI bus."""
    devices = sysfs / "bus/pci/devices"
    found = 0
    for device in devices.iterdir() if devices.is_dir() else ():
        if _text(device / "vendor") == _NVIDIA_VENDOR:
            found += (_text(device / "class") or "").startswith(_DISPLAY_CLASS)
    return found


def _interfaces(folder: Path) -> Iterator[LinkReading]:
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        state = _text(path / "operstate")
        speed = _text(path / "speed")
        # Unconfigured and virtual links have the speed -1; the file cannot even be read while down.
        megabits = int(speed) if speed and speed.lstrip("-").isdigit() else 0
        yield LinkReading(
            name=path.name,
            kind=_interface_kind(path),
            up=None if state is None else _is_up(path, state),
            speed_bits_per_s=max(0, megabits) * 1_000_000,
            address=_text(path / "address") or "",
            detail="operstate cannot be read" if state is None else f"operstate {state}",
        )


def _is_up(path: Path, state: str) -> bool:
    # Drivers without link detection (loopback, tunnels) say "unknown" and have a carrier.
    return state == "up" or (state == "unknown" and _text(path / "carrier") == "1")


def _interface_kind(path: Path) -> str:
    kind = _text(path / "type")
    if kind == _ARPHRD_LOOPBACK:
        return "loopback"
    # IP over InfiniBand rides on a port that is listed itself.
    if kind == _ARPHRD_INFINIBAND or not (path / "device").exists():
        return "virtual"
    return "ethernet"


def _ports(folder: Path) -> Iterator[LinkReading]:
    for device in sorted(folder.iterdir()) if folder.is_dir() else ():
        ports = device / "ports"
        for port in sorted(ports.iterdir()) if ports.is_dir() else ():
            state = _text(port / "state")
            layer = (_text(port / "link_layer") or "InfiniBand").lower()
            detail = f"state {state}, physical state {_text(port / 'phys_state')}"
            yield LinkReading(
                name=f"{device.name}/{port.name}",
                kind="roce" if layer == "ethernet" else "infiniband",
                up=None if state is None else state.startswith("4:"),
                speed_bits_per_s=_rate(_text(port / "rate")),
                address=_text(device / "node_guid") or "",
                detail=detail,
            )


def _rate(text: str | None) -> int:
    """Return bits per second of "400 Gb/sec (4X NDR)"; 0 when unknown."""
    match = re.match(r"([\d.]+) Gb/sec", text or "")
    return int(float(match[1]) * 1e9) if match else 0


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
