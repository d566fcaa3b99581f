"""Interfaces as sysfs shows them: what is hardware, what is up, and what cannot be read."""

import logging
import tempfile
from pathlib import Path

import pytest

from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.links.infiniband import InfinibandProbe
from everstep_agent.probes.links.network import NetworkProbe
from everstep_agent.sources.link_readings import LinkReadings
from fakes.nobody import nobody
from fakes.sysfs import FakeNode


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    made = FakeNode(tmp_path / "sys", hcas=2, gpus=0)
    made.add_ethernet("eth0")
    made.add_ethernet("eth1", number=1)
    made.add_bond("bond0", ["eth0", "eth1"])
    made.add_interface("docker0")
    made.add_interface("ib0", kind=32, pci=made.hca_pci(0))
    return made


def _kinds(node: FakeNode) -> dict[str, str]:
    return {link.name: link.kind for link in NetworkProbe(str(node.root)).read()}


def test_kinds_of_interfaces(node: FakeNode) -> None:
    assert _kinds(node) == {
        "bond0": "bond",
        "docker0": "virtual",
        "eth0": "ethernet",
        "eth1": "ethernet",
        "ib0": "ipoib",
        "lo": "loopback",
    }


def test_a_virtual_function_is_virtual(node: FakeNode) -> None:
    device = (node.root / "class/net/eth0/device").resolve()
    (device / "physfn").symlink_to(node.root)
    assert _kinds(node)["eth0"] == "virtual"


def test_a_driver_without_link_detection_is_up_with_a_carrier(node: FakeNode) -> None:
    probe = NetworkProbe(str(node.root))
    node.set_interface("eth0", "operstate", "unknown")
    for carrier, up in ((1, True), (0, False)):
        node.set_interface("eth0", "carrier", carrier)
        assert {link.name: link.up for link in probe.read()}["eth0"] is up


def test_a_link_that_somebody_switched_off_says_so(node: FakeNode) -> None:
    node.set_link("eth0", False)
    node.set_interface("eth0", "flags", "0x1002")
    details = {link.name: link.detail for link in NetworkProbe(str(node.root)).read()}
    assert details["eth0"] == "operstate down, switched off by an administrator"


def test_a_bond_and_its_slaves_are_read(node: FakeNode) -> None:
    probe = NetworkProbe(str(node.root))
    probe.read()
    node.set_slave("eth1", up=False, aggregator=2)
    (bond,) = probe.read_bonds()
    assert (bond.name, bond.mode, bond.active_slave) == ("bond0", "802.3ad", None)
    slaves = [(slave.name, slave.up, slave.aggregator) for slave in bond.slaves or ()]
    assert slaves == [("eth0", True, "1"), ("eth1", False, "2")]


def test_an_active_backup_bond_without_an_active_slave_has_an_empty_name(node: FakeNode) -> None:
    node.set_interface("bond0", "bonding/mode", "active-backup 1")
    node.set_interface("bond0", "bonding/active_slave", "")
    probe = NetworkProbe(str(node.root))
    probe.read()
    (bond,) = probe.read_bonds()
    assert bond.active_slave == ""


def test_only_hardware_and_bonds_are_counted(node: FakeNode) -> None:
    probe = NetworkProbe(str(node.root))
    probe.read()
    assert [reading.link for reading in probe.read_counters()] == ["bond0", "eth0", "eth1"]


def test_a_state_that_cannot_be_read_is_told_and_shown(node: FakeNode) -> None:
    board, probe = LinkReadings(NodeView()), NetworkProbe(str(node.root))
    node.set_interface("eth0", "operstate", "")
    board.take_interfaces(probe.read())
    note = "interfaces: the state cannot be read of eth0"
    assert note in board.view.inventory(Path("/proc")).notes
    node.set_link("eth0", True)
    board.take_interfaces(probe.read())
    assert note not in board.view.inventory(Path("/proc")).notes


def test_counters_that_cannot_be_read_are_told_once_and_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    board = LinkReadings(NodeView())
    blind = CountersReading(link="mlx5_0/1", values={}, blind=("symbol_error", "link_downed"))
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            board.take_port_counters([blind])
    why = "2 counters cannot be read: mlx5_0/1/symbol_error, mlx5_0/1/link_downed"
    assert [record.message for record in caplog.records] == [f"infiniband: {why}"]
    assert f"infiniband: {why}" in board.view.inventory(Path("/proc")).notes
    board.take_port_counters([CountersReading(link="mlx5_0/1", values={"symbol_error": 0})])
    assert not [note for note in board.view.inventory(Path("/proc")).notes if why in note]


def test_one_folder_that_may_not_be_listed_blinds_its_own_port_only() -> None:
    # Not tmp_path: nobody else may enter that.
    with tempfile.TemporaryDirectory(prefix="es") as path:
        Path(path).chmod(0o755)
        node = FakeNode(Path(path) / "sys", hcas=2, gpus=0)
        (node.port("mlx5_0") / "counters").chmod(0)
        probe = InfinibandProbe(str(node.root), str(node.dev))
        with nobody():
            assert [link.up for link in probe.read()] == [True, True]
            first, second = probe.read_counters()
    assert "symbol_error" in first.blind
    assert second.blind == ()
    assert "symbol_error" in second.values
