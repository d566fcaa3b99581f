"""How far cards are from each other, in the words of nvidia-smi topo."""

from pathlib import Path

import pytest

from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.topology import (
    Nearest,
    PciPlace,
    beside_the_rails,
    distance,
    nearest,
)
from everstep_agent.inventory.node_view import located
from everstep_agent.probes.links.pci import read_places
from everstep_common.reports import Accelerator
from fakes.sysfs import FakeNode

# A root complex, a root port, a switch of two levels, and what hangs on them.
_ROOT = ("pci0000:10", "0000:10:01.0", "0000:11:00.0")
_GPU = PciPlace((*_ROOT, "0000:12:00.0", "0000:13:00.0"), 0)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (PciPlace((*_ROOT, "0000:12:01.0", "0000:14:00.0"), 0), "PIX"),
        (PciPlace((*_ROOT, "0000:12:00.0", "0000:13:00.1"), 0), "PIX"),
        (
            PciPlace((*_ROOT, "0000:12:02.0", "0000:15:00.0", "0000:16:00.0", "0000:17:00.0"), 0),
            "PXB",
        ),
        (PciPlace(("pci0000:10", "0000:10:02.0", "0000:20:00.0"), 0), "PHB"),
        (PciPlace(("pci0000:30", "0000:30:01.0", "0000:31:00.0"), 0), "NODE"),
        (PciPlace(("pci0000:30", "0000:30:01.0", "0000:31:00.0"), 1), "SYS"),
        (PciPlace(("pci0000:30", "0000:30:01.0", "0000:31:00.0"), None), "SYS"),
    ],
)
def test_distances(place: PciPlace, expected: str) -> None:
    assert distance(_GPU, place) == expected
    assert distance(place, _GPU) == expected


def test_every_gpu_of_a_node_is_nearest_to_the_card_on_its_switch(tmp_path: Path) -> None:
    node = FakeNode(tmp_path / "sys")
    places = read_places(str(node.root))
    links = {f"mlx5_{number}/1": node.hca_pci(number) for number in range(8)}
    for number in range(8):
        found = nearest(node.gpu_pci(number), links, places)
        assert found == Nearest((f"mlx5_{number}/1",), "PIX")
    assert [places[node.gpu_pci(number)].numa_node for number in (0, 3, 4, 7)] == [0, 0, 1, 1]


def test_a_card_whose_place_is_not_known_has_no_neighbours() -> None:
    assert nearest("0000:99:00.0", {"eth0": "0000:01:00.0"}, {}) == Nearest()
    assert nearest("0000:13:00.0", {"eth0": "0000:01:00.0"}, {"0000:13:00.0": _GPU}) == Nearest()


def test_the_inventory_says_what_is_near_to_an_accelerator(tmp_path: Path) -> None:
    node = FakeNode(tmp_path / "sys")
    places = read_places(str(node.root))
    port = LinkReading(name="mlx5_5/1", kind="infiniband", up=True, pci=node.hca_pci(5))
    eth = LinkReading(name="eth0", kind="ethernet", up=True, pci=node.hca_pci(4))
    # As NVML writes addresses.
    gpu = Accelerator(
        uuid="GPU-1",
        name="H100",
        vendor="nvidia",
        pci_address=f"0000{node.gpu_pci(4).upper()}",
        memory_bytes=1,
        driver="1",
    )
    (found,) = located([gpu], [port, eth], places)
    assert found.numa_node == 1
    # Ethernet counts only where there is no RDMA.
    assert list(found.nearest_interfaces) == ["mlx5_5/1"]
    assert found.nearest_distance == "NODE"


def test_a_port_that_is_nearest_to_no_accelerator_is_no_rail(tmp_path: Path) -> None:
    node = FakeNode(tmp_path / "sys", hcas=4, gpus=4)
    node.add_ethernet("eth0")
    storage = {"mlx5_9/1": "0000:0a:00.0"}
    rails = {f"mlx5_{number}/1": node.hca_pci(number) for number in range(4)}
    places = read_places(str(node.root))
    assert beside_the_rails(rails | storage, places) == {"mlx5_9/1"}
    # On a node without accelerators, or where nothing tells, every port may be one.
    assert beside_the_rails(storage, places) == frozenset()
    no_gpus = {address: place for address, place in places.items() if not place.accelerator}
    assert beside_the_rails(rails | storage, no_gpus) == frozenset()
