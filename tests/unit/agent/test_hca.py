"""HCAs: PCIe links below what card and slot can have, and temperatures."""

from pathlib import Path

import pytest

from everstep_agent.detectors.links.hca import HcaReading, Sensor, judge_hcas
from everstep_agent.detectors.links.infiniband_limits import InfinibandLimits
from everstep_agent.probes.links.hca import read_hcas
from everstep_common.judging.judgement import Faulty, Healthy, Unknown
from fakes.sysfs import FakeNode


def _judge(node: FakeNode, condition: str) -> list[type]:
    judgements = judge_hcas(read_hcas(str(node.root)), InfinibandLimits())
    return [type(one) for one in judgements if one.key.condition == condition]


@pytest.mark.parametrize(
    ("lanes", "rate", "expected"),
    [
        (16, "32.0 GT/s PCIe", Healthy),
        (8, "32.0 GT/s PCIe", Faulty),
        (16, "8.0 GT/s PCIe", Faulty),
        (0, "Unknown", Unknown),
        (255, "32.0 GT/s PCIe", Unknown),
    ],
)
def test_a_link_below_what_card_and_slot_can_have(
    tmp_path: Path, lanes: int, rate: str, expected: type
) -> None:
    node = FakeNode(tmp_path / "sys", hcas=1, gpus=0)
    node.set_pcie(node.hca_pci(0), lanes, rate)
    assert _judge(node, "HcaPcieNarrow") == [expected]


def test_a_card_in_a_narrow_slot_is_no_fault(tmp_path: Path) -> None:
    node = FakeNode(tmp_path / "sys", hcas=1, gpus=0)
    node.set_pcie(node.hca_pci(0), lanes=8)
    card = (node.root / f"bus/pci/devices/{node.hca_pci(0)}").resolve()
    (card.parent / "max_link_width").write_text("8\n")
    assert _judge(node, "HcaPcieNarrow") == [Healthy]


def test_a_hot_transceiver_alarms_before_the_card_does(tmp_path: Path) -> None:
    node = FakeNode(tmp_path / "sys", hcas=1, gpus=0)
    assert _judge(node, "HcaTooHot") == []
    for label, celsius, expected in (
        ("asic", 95, Healthy),
        ("Module0", 79, Healthy),
        ("Module0", 80, Faulty),
        ("Module0", 60, Healthy),
        ("asic", 105, Faulty),
    ):
        node.set_temperature(node.hca_pci(0), celsius, label)
        assert _judge(node, "HcaTooHot") == [expected]


def test_a_sensor_without_a_limit_is_not_judged_hot() -> None:
    hca = HcaReading(device="mlx5_0", sensors=(Sensor(label="asic", celsius=130.0),))
    judgements = list(judge_hcas([hca], InfinibandLimits()))
    assert [type(one) for one in judgements] == [Unknown, Healthy]
