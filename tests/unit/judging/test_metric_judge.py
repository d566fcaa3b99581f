"""A judge of a sampled metric, as somebody would add one: a file, a line, and this."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from everstep_common.judging.condition import Condition
from everstep_common.judging.fault import Fault
from everstep_common.judging.findings import Measurement
from everstep_common.samples import COLUMNS, SCHEMA
from everstep_controller.judging.judge import NodeEvidence, Ruling
from everstep_controller.judging.peers import Direction, compare
from everstep_controller.judging.view import FleetView
from everstep_controller.telemetry.samples import PackedSamples, SampleRing
from unit.judging.virtual_fleet import S, VirtualFleet

_COLUMN = "gpu_power_w_sum"
_DRAWS_MORE = Condition(
    name="DrawsMore",
    component="gpus",
    meaning="the GPUs of the node draw 500 W more than those of most",
    source="this test",
    clears_when="they draw as much as the others",
)


@dataclass(frozen=True)
class PowerJudge:
    """Compares what the GPUs of the nodes draw."""

    conditions: ClassVar[tuple[Condition, ...]] = (_DRAWS_MORE,)

    def judge(self, view: FleetView) -> Iterator[Ruling]:
        """See Judge."""
        power_w = view.metric_mean(_COLUMN)
        compared = compare(power_w, 0.0, 500.0, Direction.ABOVE)
        if compared is not None:
            yield Ruling(
                condition=_DRAWS_MORE,
                fault=Fault(message="the GPUs draw more than those of the others", rule="median"),
                faulty=compared.outside,
                healthy=compared.inside,
                explain=lambda i: NodeEvidence(
                    f"{power_w[i]:.0f} W", (Measurement("power_w", float(power_w[i])),)
                ),
            )


def packed(*values: float) -> PackedSamples:
    """Return rows in which one metric is known, or nothing (NaN)."""
    rows = np.full((len(values), len(COLUMNS)), np.nan, dtype="<f4")
    rows[:, COLUMNS.index(_COLUMN)] = values
    return PackedSamples(SCHEMA, rows.tobytes(), 0, S)


def view_of(powers_w: Mapping[str, tuple[float, ...]]) -> FleetView:
    """Return a view of nodes with these samples."""
    ring = SampleRing(window=4)
    for node, values in powers_w.items():
        ring.add_batch(node, packed(*values), S)
    return replace(VirtualFleet(len(powers_w)).view(), samples=ring, nodes=tuple(powers_w))


def test_the_mean_of_a_metric_is_of_what_is_known() -> None:
    unknown = float("nan")
    view = view_of({"a": (1.0, 3.0), "b": (unknown, 4.0), "c": (unknown,), "d": (9, 1, 1, 1, 1)})
    assert np.array_equal(view.metric_mean(_COLUMN), [2.0, 4.0, unknown, 1.0], equal_nan=True)


def test_who_stands_out_on_one_side_does_not_on_the_other() -> None:
    values = np.array([10.0, 11.0, 12.0, 40.0, 11.0, 10.0, 12.0, -20.0, 11.0, 10.0, 12.0, 11.0])

    def outside(direction: Direction) -> list[int]:
        compared = compare(values, 0.0, 20.0, direction)
        assert compared is not None
        assert compared.inside.sum() == 12 - compared.outside.sum()
        return [int(i) for i in np.flatnonzero(compared.outside)]

    assert outside(Direction.ABOVE) == [3]
    assert outside(Direction.BELOW) == [7]
    assert outside(Direction.BOTH) == [3, 7]


def test_a_node_that_draws_more_than_its_peers_is_found() -> None:
    powers_w = {f"n{number}": (5000.0 + number,) for number in range(8)} | {"n3": (6000.0,)}
    view = view_of(powers_w)
    (ruling,) = PowerJudge().judge(view)
    assert [view.nodes[i] for i in np.flatnonzero(ruling.faulty)] == ["n3"]
    assert ruling.healthy.sum() == 7
    assert ruling.explain(3).measurements == (Measurement("power_w", 6000.0),)
