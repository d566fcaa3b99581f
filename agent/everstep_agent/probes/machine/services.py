"""Service probe: the units that a GPU node needs, its kernel modules, and its NVSwitches."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from everstep_agent.detectors.host.services import ServicesReading, UnitReading
from everstep_agent.probes.machine.kernel_files import names_in, text_of
from everstep_agent.probes.machine.system_bus import NoServiceManagerError, Unit

# Asking for a unit that is not installed makes systemd look for its file: not at every look.
_LOOKS_PER_LISTING = 6
_NVIDIA_VENDOR = "0x10de"
# PCI class 0680, "other bridge": what an NVSwitch of an HGX board shows itself as.
_NVSWITCH_CLASS = "0x0680"


class ServiceManager(Protocol):
    """Service manager that can tell the state of units."""

    def units(self, names: Sequence[str]) -> list[Unit]:
        """Return the named units, in this order. Raises OSError."""
        ...

    def ask(self, path: str, interface: str, name: str) -> object:
        """Return one property of a unit. Raises OSError."""
        ...

    def signals(self, paths: Sequence[str]) -> socket.socket:
        """Return a socket on which something comes when a unit changes. Raises OSError."""
        ...


class ServicesProbe:
    """Asks for the units that are installed; now and then, which are."""

    def __init__(self, sysfs: Path, names: Sequence[str], manager: ServiceManager) -> None:
        self._sysfs = sysfs
        self._names = tuple(dict.fromkeys(names))
        self._manager = manager
        self._installed: tuple[str, ...] = ()
        self._paths: tuple[str, ...] = ()
        self._looks = 0
        self._nvswitches: int | None = None

    def read(self) -> ServicesReading:
        """Read once. Raises OSError when a service manager that was there fails."""
        listing = self._looks % _LOOKS_PER_LISTING == 0
        units: tuple[UnitReading, ...] = ()
        absent = ""
        try:
            units = self._units(self._names if listing else self._installed)
        except NoServiceManagerError as error:
            if self._installed:
                raise
            absent = str(error)
        self._looks += 1
        return ServicesReading(
            absent=absent,
            units=units,
            modules=frozenset(names_in(self._sysfs / "module")),
            nvswitches=self._count_nvswitches(),
        )

    def signals(self) -> socket.socket | None:
        """Return a socket that tells of changes in what was read. Raises OSError."""
        return self._manager.signals(self._paths) if self._paths else None

    def _units(self, names: Sequence[str]) -> tuple[UnitReading, ...]:
        if not names:
            return ()
        told = self._manager.units(names)
        there = [unit for unit in told if unit.load != "not-found"]
        self._installed = tuple(unit.name for unit in there)
        self._paths = tuple(unit.path for unit in there)
        missing = (unit for unit in told if unit.load == "not-found")
        return (
            *(self._details(unit) for unit in there),
            *(
                UnitReading(name=one.name, load=one.load, active="inactive", sub="dead")
                for one in missing
            ),
        )

    def _details(self, unit: Unit) -> UnitReading:
        is_service = unit.name.endswith(".service") and unit.load == "loaded"
        restarts = self._manager.ask(unit.path, "Service", "NRestarts") if is_service else None
        file_state, oneshot, skipped = "", False, False
        if unit.active == "inactive" and unit.load == "loaded":
            file_state = str(self._manager.ask(unit.path, "Unit", "UnitFileState"))
            skipped = self._is_skipped(unit)
            oneshot = is_service and self._manager.ask(unit.path, "Service", "Type") == "oneshot"
        return UnitReading(
            name=unit.name,
            load=unit.load,
            active=unit.active,
            sub=unit.sub,
            file_state=file_state,
            oneshot=oneshot,
            skipped=skipped,
            restarts=restarts if isinstance(restarts, int) else None,
        )

    def _is_skipped(self, unit: Unit) -> bool:
        """Return whether systemd tried to start a unit and its conditions did not hold."""
        tried = self._manager.ask(unit.path, "Unit", "ConditionTimestampMonotonic")
        return bool(tried) and self._manager.ask(unit.path, "Unit", "ConditionResult") is False

    def _count_nvswitches(self) -> int:
        if self._nvswitches is None:
            bus = self._sysfs / "bus/pci/devices"
            self._nvswitches = sum(
                (text_of(bus / name / "class") or "").startswith(_NVSWITCH_CLASS)
                and text_of(bus / name / "vendor") == _NVIDIA_VENDOR
                for name in names_in(bus)
            )
        return self._nvswitches
