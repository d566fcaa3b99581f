"""Agent benchmark: its cost on a node, and the time until the controller knows of a fault.

Everything runs on this machine, one after another: the agent of a faked node of 8 GPUs and 8 HCAs
(the tests' driver library and sysfs tree), an agent of the machine as it is, and node-exporter;
each agent is connected to a real controller.
"""

from collections.abc import Iterator

from agent import cost as agent_cost
from agent import latency as agent_latency
from harness.table import Row, arguments, show


def compare(seconds: float, repeats: int, faults: int) -> Iterator[Row]:
    """Measure everything and yield the rows."""
    yield from agent_cost.measure(seconds, repeats)
    yield from agent_latency.measure(faults)


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--faults", type=int, default=200, help="faults of each kind")
    parser.add_argument("--quick", action="store_true", help="two windows of 3 s, 20 faults")
    given = parser.parse_args()
    if given.quick:
        given.seconds, given.repeats, given.faults = 3.0, 2, 20
    show(list(compare(given.seconds, given.repeats, given.faults)), given.json)


if __name__ == "__main__":
    main()
