"""Whatever sysfs says (nothing, a page of it, binary, or that the file is gone), no probe fails."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep_agent.detectors.links.bonds import BondDetector
from everstep_agent.detectors.links.detector import LinkDetector
from everstep_agent.detectors.links.ethernet import EthernetDetector
from everstep_agent.detectors.links.hca import judge_hcas
from everstep_agent.detectors.links.infiniband import InfinibandDetector
from everstep_agent.detectors.links.infiniband_limits import InfinibandLimits
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.detectors.readings.topology import nearest
from everstep_agent.inventory.node_view import interface
from everstep_agent.probes.links.hca import read_hcas
from everstep_agent.probes.links.infiniband import InfinibandProbe, rate
from everstep_agent.probes.links.network import NetworkProbe
from everstep_agent.probes.links.pci import read_places
from everstep_agent.probes.links.sysfs_file import Descriptors, SysfsFile
from everstep_common.reports import Interface
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire, to_wire
from fakes.sysfs import FakeNode
from unit.agent.link_time import Timeline

# What is in files of sysfs, and what should never be.
_CONTENT = st.one_of(
    st.binary(max_size=64),
    st.sampled_from([b"", b"\n", b"-1\n", b"N/A (no PMA)\n", b"9" * 30, b"4: ACTIVE\n", b"\xb2\n"]),
    st.integers(-(2**70), 2**70).map(lambda number: f"{number}\n".encode()),
    st.just(b"7" * 10_000),
)
_FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Whole:
    """A node, all probes on it, and all detectors behind them."""

    def __init__(self, root: Path) -> None:
        self.node = FakeNode(root, hcas=2, gpus=1)
        self.node.add_ethernet("eth0")
        self.node.add_ethernet("eth1", number=1)
        self.node.add_bond("bond0", ["eth0", "eth1"])
        self.node.set_temperature(self.node.hca_pci(0), 50)
        self.files = sorted(
            path
            for path in (*root.glob("devices/**/*"), *root.glob("class/net/**/*"))
            if path.is_file()
        )
        self.ports = InfinibandProbe(str(root), str(self.node.dev))
        self.network = NetworkProbe(str(root))
        counters = Counters()
        self.links = LinkDetector(counters=counters)
        self.errors = InfinibandDetector(counters, self.links.history)
        self.statistics = EthernetDetector(counters, self.links.history)
        self.time = Timeline()

    def look(self) -> None:
        """Read everything and judge it, as the sources do."""
        links = (*self.network.read(), *self.ports.read())
        now = self.time.now
        self.time.take(self.links.judge(links, now))
        self.time.take(self.errors.judge(self.ports.read_counters(), now))
        self.time.take(self.errors.judge_files(self.ports.read_files()))
        self.time.take(judge_hcas(read_hcas(str(self.node.root)), InfinibandLimits()))
        self.time.take(self.statistics.judge(self.network.read_counters(), now))
        self.time.take(BondDetector().judge(self.network.read_bonds()))
        places = read_places(str(self.node.root))
        nearest(self.node.gpu_pci(0), {link.name: link.pci for link in links}, places)
        for link in links:
            # What is read must be fit for the wire, and within the bounds of the other side.
            from_wire(Interface, to_wire(interface(link), fleet_pb2.Interface))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    made = Whole(tmp_path_factory.mktemp("node") / "sys")
    yield made
    shutil.rmtree(made.node.root)


@_FUZZ
@given(data=st.data())
def test_no_content_of_a_file_fails_a_probe_or_a_detector(
    whole: Whole, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(whole.files), max_size=6, unique=True))
    before = {path: path.read_bytes() for path in chosen}
    for path in chosen:
        path.write_bytes(data.draw(_CONTENT))
    # Facts are read anew now and then: also from damaged files.
    whole.ports._looks = whole.network._looks = 0
    whole.look()
    for path, content in before.items():
        path.write_bytes(content)
    whole.look()


@_FUZZ
@given(data=st.data())
def test_files_and_folders_that_vanish_while_they_are_read_fail_nothing(
    whole: Whole, data: st.DataObject
) -> None:
    whole.look()
    chosen = data.draw(st.lists(st.sampled_from(whole.files), max_size=4, unique=True))
    kept = {path: path.read_bytes() for path in chosen}
    for path in chosen:
        path.unlink()
    whole.look()
    for path, content in kept.items():
        path.write_bytes(content)
    whole.look()


@given(st.text())
def test_a_rate_is_a_number_or_unknown(text: str) -> None:
    assert 0 <= rate(text) < 10**16


def test_rates_of_the_kernel() -> None:
    assert rate("400 Gb/sec (4X NDR)") == 400 * 10**9
    assert rate("2.5 Gb/sec (1X SDR)") == 2_500_000_000


def test_a_file_that_is_empty_huge_or_no_number_is_blind_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    node = FakeNode(tmp_path / "sys", hcas=1, gpus=0)
    node.set_counter("mlx5_0", "symbol_error", "N/A (no PMA)")
    node.set_counter("mlx5_0", "link_downed", "1" * 5000)
    (node.port("mlx5_0") / "counters/port_rcv_errors").write_text("")
    node.set_counter("mlx5_0", "port_xmit_discards", 77)
    probe = InfinibandProbe(str(node.root), str(node.dev))
    probe.read()
    (reading,) = probe.read_counters()
    assert reading.blind == ("symbol_error", "link_downed", "port_rcv_errors")
    assert reading.values["port_xmit_discards"] == 77


def test_a_virtual_function_belongs_to_its_guest(tmp_path: Path) -> None:
    node = FakeNode(tmp_path / "sys", hcas=2, gpus=0)
    (node.root / f"bus/pci/devices/{node.hca_pci(1)}/physfn").symlink_to(node.root)
    probe = InfinibandProbe(str(node.root), str(node.dev))
    assert [port.name for port in probe.read()] == ["mlx5_0/1"]


def test_an_hca_that_vanishes_and_returns_is_read_again_without_losing_descriptors(
    tmp_path: Path,
) -> None:
    node = FakeNode(tmp_path / "sys", hcas=2, gpus=0)
    probe = InfinibandProbe(str(node.root), str(node.dev))
    probe.read()
    probe.read_counters()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert len(probe.read()) == 2
        probe.read_counters()
        node.remove_hca("mlx5_1")
        assert [port.name for port in probe.read()] == ["mlx5_0/1"]
        node.add_hca("mlx5_1", node.hca_pci(1))
    probe.read()
    probe.read_counters()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_past_the_limit_of_descriptors_files_are_opened_for_every_read(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text("5\n")
    limited = Descriptors(1)
    kept, opened = SysfsFile(str(path), limited), SysfsFile(str(path), limited)
    before = len(os.listdir("/proc/self/fd"))
    assert (kept.number(), opened.number()) == (5, 5)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    kept.close()
    assert (opened.number(), opened.number()) == (5, 5)
    opened.close()
    assert len(os.listdir("/proc/self/fd")) == before
