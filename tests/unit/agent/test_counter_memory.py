"""Counters from one agent to the next."""

from everstep_agent.detectors.readings.counters import Counters, Growth
from everstep_agent.monitoring.memory import dump_counters, load_counters
from everstep_common.clock import Stamp


def test_a_counter_grows_over_a_restart_of_the_agent() -> None:
    counters = Counters()
    counters.take("gpu/0/ecc", 5, Stamp("boot-1", 10**9, 1))
    again = load_counters(dump_counters(counters))
    assert again.take("gpu/0/ecc", 8, Stamp("boot-1", 3 * 10**9, 2)) == Growth(3, 2.0)


def test_what_cannot_be_read_is_forgotten() -> None:
    for text in ("", "{", "[1]", '{"a": 1}', '{"a": {"value": "x"}}'):
        assert dict(load_counters(text).remembered()) == {}
