"""Minutes of a day in which error counters of ports grew, in virtual time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.history import LinkHistory
from everstep_agent.detectors.links.infiniband import InfinibandDetector
from everstep_agent.detectors.links.infiniband_rules import REGISTERS
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.reports.link_columns import COUNTERS
from everstep_controller.judging.link_errors import LinkErrors, PortErrors
from unit.agent.link_time import Timeline

_RECOVERY, _LOSS, _SYMBOL = COUNTERS
_NO_VALUES: Mapping[str, int] = {}


@dataclass
class Node:
    """A node of two ports whose counters a test sets, and what the controller knows of them."""

    values: list[dict[str, int]] = field(
        default_factory=lambda: [dict.fromkeys(REGISTERS, 0) for _ in range(2)]
    )

    def __post_init__(self) -> None:
        self.detector = InfinibandDetector(Counters(), LinkHistory())
        self.time = Timeline()
        self.read(3)

    def read(self, times: int = 1, seconds: float = 60.0, *, injected: bool = False) -> None:
        for _ in range(times):
            readings = [
                CountersReading(link=f"mlx5_{number}/1", values=dict(values))
                for number, values in enumerate(self.values)
            ]
            list(self.detector.judge(readings, self.time.now, injected=injected))
            self.time.seconds += seconds

    def grow(self, port: int = 0, **by: int) -> None:
        for name, count in by.items():
            self.values[port][name] += count

    def known(self) -> PortErrors:
        """Return what arrives at the controller."""
        columns = self.detector.minutes.columns(self.time.now)
        assert columns is not None
        errors = LinkErrors()
        errors.add("n", columns, 0)
        (told,) = errors.of_nodes(["n"], 0)
        assert told is not None
        return told


def test_each_counter_tells_in_how_many_minutes_it_grew_and_when() -> None:
    node = Node()
    node.grow(link_error_recovery=1)
    node.read()
    node.grow(1, symbol_error=700)
    node.read(12, seconds=5)
    node.grow(1, symbol_error=700)
    node.read(12, seconds=5)
    told = node.known()
    assert told.ports == ("mlx5_0/1", "mlx5_1/1")
    assert told.minutes.tolist() == [[1, 0], [0, 0], [0, 2]]
    assert told.newest[0, 0] == told.oldest[0, 0] == 4
    assert (told.newest[2, 1], told.oldest[2, 1]) == (2, 3)
    assert told.known.all()
    assert told.watched == 6


def test_what_is_a_day_old_is_forgotten() -> None:
    node = Node()
    node.grow(link_downed=1)
    node.read(24 * 60 - 1)
    assert node.known().minutes[1, 0] == 1
    node.read(3)
    assert node.known().minutes[1, 0] == 0
    assert node.known().watched == 24 * 60


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_that_is_full_tells_nothing_and_one_that_was_reset_counts_on(name: str) -> None:
    node = Node()
    bit = COUNTERS.index(name)
    node.values[0][name] = REGISTERS[name].largest
    node.read()
    assert node.known().known[:, 0].tolist() == [place != bit for place in range(3)]
    node.values[0][name] = 4  # perfquery -R, and some since: they are of no known minute
    node.read()
    assert node.known().known.all()
    assert node.known().minutes[bit, 0] == 0
    node.grow(**{name: 1})
    node.read()
    assert node.known().minutes[bit, 0] == 1


def test_a_counter_that_is_not_there_is_no_peer() -> None:
    node = Node()
    del node.values[0]["symbol_error"]
    node.read()
    assert node.known().known[2].tolist() == [False, True]


def test_training_at_the_start_and_growth_that_nobody_saw_are_left_out() -> None:
    node = Node()
    node.grow(link_error_recovery=3)
    node.read(seconds=3600)
    node.grow(link_error_recovery=3)
    node.read()
    assert np.count_nonzero(node.known().minutes) == 1, "the hour has no minute"
    node.time.boot, node.time.seconds = "boot-2", -3600
    node.grow(link_error_recovery=3)
    node.read(2, seconds=30)
    assert not node.known().minutes.any()
    assert node.known().watched == 1


def test_a_fault_made_on_purpose_is_not_compared() -> None:
    node = Node()
    node.grow(link_error_recovery=5)
    node.read(injected=True)
    node.values[0][_RECOVERY] = 0
    node.read()
    assert not node.known().minutes.any()


def test_a_port_that_is_gone_is_not_told() -> None:
    node = Node()
    node.values.pop()
    node.read()
    assert node.known().ports == ("mlx5_0/1",)
