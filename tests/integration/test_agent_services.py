"""Services over the real D-Bus protocol: a fake systemd behind a real socket."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.detectors.host.service_limits import ServiceLimits
from everstep_agent.detectors.host.services import UnitReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.machine.services import ServicesProbe
from everstep_agent.probes.machine.system_bus import BusError, SystemBus
from everstep_agent.sources.services import ServicesSettings, services_source
from everstep_common.clock import Stamp
from fakes.system_bus import FakeBus, FakeSystemd, FakeUnit
from fakes.waits import eventually

_NOW = Stamp("boot-1", 3600 * 10**9, 1)
_PATIENCE_S = 20.0


def _systemd() -> FakeSystemd:
    return FakeSystemd(
        {
            "slurmd.service": FakeUnit(properties={"NRestarts": 2}),
            "kubelet.service": FakeUnit(
                active="inactive",
                sub="dead",
                properties={
                    "NRestarts": 0,
                    "UnitFileState": "enabled",
                    "ConditionTimestampMonotonic": 0,
                    "ConditionResult": False,
                    "Type": "notify",
                },
            ),
        }
    )


@pytest.fixture
def systemd() -> FakeSystemd:
    return _systemd()


@pytest.fixture
def bus(tmp_path: Path, systemd: FakeSystemd) -> Iterator[FakeBus]:
    served = FakeBus(tmp_path / "bus", systemd)
    yield served
    served.close()


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[ServicesProbe]:
    names = ["slurmd.service", "kubelet.service", "docker.service"]
    with contextlib.closing(SystemBus(tmp_path / "bus")) as client:
        yield ServicesProbe(tmp_path / "sys", names, client)


@pytest.mark.usefixtures("bus")
def test_units_are_told_with_what_matters_of_each(probe: ServicesProbe) -> None:
    told = {unit.name: unit for unit in probe.read().units}
    assert told == {
        "slurmd.service": UnitReading(name="slurmd.service", restarts=2),
        "kubelet.service": UnitReading(
            name="kubelet.service",
            active="inactive",
            sub="dead",
            file_state="enabled",
            restarts=0,
        ),
        "docker.service": UnitReading(
            name="docker.service", load="not-found", active="inactive", sub="dead"
        ),
    }


@pytest.mark.usefixtures("bus")
def test_what_is_not_installed_is_asked_for_only_now_and_then(probe: ServicesProbe) -> None:
    names = [{unit.name for unit in probe.read().units} for _ in range(7)]
    assert ["docker.service" in seen for seen in names] == [True, *[False] * 5, True]


def test_a_machine_without_a_bus_says_so_and_has_no_fault(
    tmp_path: Path, probe: ServicesProbe
) -> None:
    reading = probe.read()
    assert reading.absent == f"no system bus at {tmp_path}/bus"
    assert reading.units == ()


@pytest.mark.usefixtures("bus")
def test_a_bus_without_systemd_says_so_and_has_no_fault(
    probe: ServicesProbe, systemd: FakeSystemd
) -> None:
    systemd.present = False
    assert "no systemd on the system bus" in probe.read().absent


def test_a_bus_that_went_away_is_an_error_and_one_that_came_back_is_asked_again(
    tmp_path: Path, probe: ServicesProbe, systemd: FakeSystemd
) -> None:
    bus = FakeBus(tmp_path / "bus", systemd)
    assert probe.read().units
    bus.hang_up()
    with pytest.raises(BusError):
        probe.read()
    assert probe.read().units
    bus.close()
    (tmp_path / "bus").unlink()
    for _ in range(2):
        with pytest.raises(OSError, match="bus"):
            probe.read()


def test_bytes_that_are_no_message_are_an_error(probe: ServicesProbe, bus: FakeBus) -> None:
    probe.read()
    for connection in bus._connections:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(BusError):
        probe.read()
    assert probe.read().units


def test_modules_and_switches_are_read_from_sysfs(tmp_path: Path, probe: ServicesProbe) -> None:
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    for name, vendor, kind in (
        ("0000:05:00.0", "0x10de", "0x068000"),
        ("0000:06:00.0", "0x10de", "0x030200"),
        ("0000:07:00.0", "0x8086", "0x068000"),
    ):
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
    reading = probe.read()
    assert reading.modules == {"nvidia_peermem"}
    assert reading.nvswitches == 1


def _settings(folder: Path) -> ServicesSettings:
    limits = ServiceLimits(units=("slurmd.service",))
    return ServicesSettings(
        sysfs=folder / "sys", bus=folder / "bus", limits=limits, deadline_s=_PATIENCE_S
    )


def test_a_change_of_a_unit_asks_for_a_look_at_once(tmp_path: Path, bus: FakeBus) -> None:
    async def scenario() -> None:
        source = services_source(_settings(tmp_path), NodeView(), Counters(), lambda: _NOW)
        woken = asyncio.Event()
        stop = source.listen(woken.set)
        try:
            await source.look()
            assert bus.listeners == 1
            bus.changed("slurmd.service")
            async with asyncio.timeout(_PATIENCE_S):
                await woken.wait()
            # A storm of changes is one look more, a second later.
            woken.clear()
            for _ in range(50):
                bus.changed("slurmd.service")
            async with asyncio.timeout(_PATIENCE_S):
                await woken.wait()
            # The bus goes away and comes back: the next look listens again.
            bus.hang_up()

            async def listens() -> bool:
                await source.look()
                return bus.listeners > 0

            await eventually(listens)
        finally:
            stop()

    asyncio.run(scenario())


def test_a_systemd_that_hangs_misses_the_deadline_and_delays_nothing_else(
    tmp_path: Path, bus: FakeBus, systemd: FakeSystemd
) -> None:
    async def scenario() -> None:
        settings = ServicesSettings(sysfs=tmp_path, bus=tmp_path / "bus", deadline_s=0.2)
        source = services_source(settings, NodeView(), Counters(), lambda: _NOW)
        with systemd.answering:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await source.look()
        await eventually(source.look)

    asyncio.run(scenario())
