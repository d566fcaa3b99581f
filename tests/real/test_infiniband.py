"""Ports and counters of a simulated fabric, with the real subnet manager and diagnostic tools."""

from collections.abc import Iterator

import pytest

from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.history import LinkHistory
from everstep_agent.detectors.links.infiniband import InfinibandDetector
from everstep_agent.detectors.links.infiniband_rules import REGISTERS
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.probes.links.infiniband import InfinibandProbe
from fakes.waits import wait_until
from real.ibsim import Fabric, missing
from unit.agent.link_time import Timeline

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        bool(missing()),
        reason=f"not installed: {missing()} (apt: ibsim-utils infiniband-diags opensm)",
    ),
]

# As perfquery calls what sysfs has in counters/.
_NAMES = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "port_rcv_switch_relay_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "VL15Dropped": "VL15_dropped",
}
_BEYOND = 10**6


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with Fabric(tmp_path_factory.mktemp("fabric")).running() as running:
        yield running


def _port(fabric: Fabric, node: str) -> LinkReading:
    with fabric.sysfs(node) as root:
        (port,) = InfinibandProbe(str(root)).read()
    return port


def _wait_for(fabric: Fabric, node: str, *, up: bool) -> LinkReading:
    def read() -> LinkReading | None:
        port = _port(fabric, node)
        return port if port.up is up else None

    return wait_until(read)


def test_the_state_of_a_port_is_read_as_the_subnet_manager_set_it(fabric: Fabric) -> None:
    port = _wait_for(fabric, "node-1", up=True)
    assert (port.name, port.kind, port.speed_bits_per_s) == ("ibsim0/1", "infiniband", 104 * 10**9)
    assert port.detail == "state 4: ACTIVE, physical state 5: LinkUp"


def test_a_cable_that_is_pulled_and_plugged_in_again(fabric: Fabric) -> None:
    fabric.command('Unlink "node-1 mlx5_0"[1]')
    down = _wait_for(fabric, "node-1", up=False)
    assert down.detail == "state 1: DOWN, physical state 2: Polling"
    fabric.command('ReLink "node-1 mlx5_0"[1]')
    _wait_for(fabric, "node-1", up=True)


def _read(fabric: Fabric) -> CountersReading:
    answer = fabric.perfquery("node-0")
    values = {_NAMES[name]: value for name, value in answer.items() if name in _NAMES}
    return CountersReading(link="mlx5_0/1", values=values)


def _set(fabric: Fabric, name: str, value: int) -> None:
    fabric.command(f'PerformanceSet "node-0 mlx5_0"[1] PortCounters.{name}={value}')


def test_registers_end_where_we_say_that_they_do(fabric: Fabric) -> None:
    for name in _NAMES:
        _set(fabric, name, _BEYOND)
    largest = {name: REGISTERS[name].largest for name in _NAMES.values()}
    wait_until(lambda: dict(_read(fabric).values) == largest)
    for name in _NAMES:
        _set(fabric, name, 0)
    wait_until(lambda: not any(_read(fabric).values.values()))


def test_errors_of_the_fabric_are_found(fabric: Fabric) -> None:
    detector, time = InfinibandDetector(Counters(), LinkHistory()), Timeline()

    def look() -> list[str]:
        return time.take(detector.judge([_read(fabric)], time.now), seconds=5)

    look()
    _set(fabric, "SymbolErrorCounter", 200)
    _set(fabric, "LocalLinkIntegrityErrors", 15)
    wait_until(lambda: _read(fabric).values["local_link_integrity_errors"] == 15)
    assert set(look()) == {"+IbSymbolErrorsPerHour", "+IbLinkIntegrity", "+LinkCounterSaturated"}
    _set(fabric, "LocalLinkIntegrityErrors", 0)
    wait_until(lambda: _read(fabric).values["local_link_integrity_errors"] == 0)
    assert "-LinkCounterSaturated" in look()
