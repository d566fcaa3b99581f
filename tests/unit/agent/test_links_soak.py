"""Hours of links that flap, slow down, count errors and vanish: what is raised also clears."""

import random

import pytest

from everstep_agent.detectors.links.detector import LinkDetector
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.infiniband import InfinibandDetector
from everstep_agent.detectors.links.infiniband_rules import REGISTERS
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.counters import Counters
from unit.agent.link_time import Timeline, port

_BAD_S = 1800
# Longer than every window and every time for which something stays visible.
_GOOD_S = 2 * 3600


class Rails:
    """Four ports with their detectors, looked at every second and counted every five."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time = Timeline()
        self.values = [dict.fromkeys(REGISTERS, 0) for _ in range(4)]
        self.start_agent(Counters())

    def start_agent(self, counters: Counters) -> None:
        """Start an agent, which knows the counters and findings of the one before."""
        self.counters = counters
        self.links = LinkDetector(counters=counters, monitor="infiniband")
        self.errors = InfinibandDetector(counters, self.links.history)

    def look(self, ports: list[LinkReading]) -> list[str]:
        """Look, and count when it is time; let a second pass."""
        judgements = list(self.links.judge(ports, self.time.now))
        if int(self.time.seconds) % 5 == 0:
            readings = [
                CountersReading(link=f"mlx5_{number}/1", values=dict(values))
                for number, values in enumerate(self.values)
            ]
            judgements += self.errors.judge(readings, self.time.now)
        return self.time.take(judgements)

    def misbehave(self) -> list[LinkReading]:
        """Return a bad second: any port in any state, any counter anywhere."""
        chance = self.random
        for values in self.values:
            name = chance.choice(list(values))
            step = chance.choice((0, 0, 0, 1, 7, 5000))
            values[name] = chance.choice((min(values[name] + step, REGISTERS[name].largest), 0))
        states = chance.choices((True, False, None), (80, 15, 5), k=4)
        speeds = chance.choices((400, 200), (9, 1), k=4)
        ports = [port(states[number], number, speeds[number]) for number in range(4)]
        return ports if chance.random() < 0.97 else ports[: chance.randrange(4)]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_raised_clears_when_all_is_well_again(seed: int) -> None:
    rails = Rails(seed)
    raised: set[str] = set()
    for second in range(_BAD_S):
        raised.update(rails.look(rails.misbehave()))
        if second == _BAD_S // 2:
            rails.start_agent(Counters(rails.counters.remembered()))
    assert len(raised) > 10
    # Somebody repaired it, and reset the counters that were full.
    rails.values = [dict.fromkeys(REGISTERS, 0) for _ in range(4)]
    for _ in range(_GOOD_S):
        rails.look([port(number=number) for number in range(4)])
    assert [known.finding for known in rails.time.book.open_findings] == []


def test_hours_without_a_fault_raise_nothing() -> None:
    rails = Rails(0)
    for second in range(3 * 3600):
        for values in rails.values:
            # Some symbol errors and discards are normal; so are those of a lifetime.
            values["symbol_error"] += second % 120 == 0
            values["port_xmit_discards"] = min(values["port_xmit_discards"] + 3, 65534)
        assert rails.look([port(number=number) for number in range(4)]) == []
