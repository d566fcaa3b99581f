"""Inventory source: compares the node with its expected inventory in a steady rhythm."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.detectors.inventory.detector import SeenInventory, judge_inventory
from everstep_agent.detectors.inventory.expected import ExpectedInventory
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.sources.inventory import read_cpus, seen
from everstep_agent.sources.source import Source
from everstep_agent.sources.threaded import threaded
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement

# Parts go missing at boots, not within seconds; what dies in between has detectors of its own.
INVENTORY_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Expectation:
    """Inventory to compare with, and the readings that are compared."""

    expected: ExpectedInventory
    view: NodeView
    open_keys: Callable[[], Iterable[FindingKey]]


def inventory_source(what: Expectation, sysfs: Path, deadline_s: float) -> Source:
    """Return the source. It judges what the other sources have read."""

    def read() -> SeenInventory:
        return seen(what.view, read_cpus(sysfs))

    def judge(reading: SeenInventory) -> Sequence[Judgement]:
        return judge_inventory(what.expected, reading, what.open_keys())

    return Source(
        name="inventory",
        group="inventory",
        interval_s=INVENTORY_INTERVAL_S,
        look=threaded("inventory", deadline_s, read, judge),
    )
