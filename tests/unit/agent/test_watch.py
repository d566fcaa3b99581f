"""The rhythm of the watch: its ticks, what asks for a look at once, and a source that hangs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.sources.source import Source
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.judgement import Judgement
from everstep_proto.generated import fleet_pb2
from fakes.jumping_loop import simulate


@dataclass
class Looks:
    """A source that only notes when it was looked at, and what rings its bell."""

    name: str
    interval_s: float = 1.0
    takes_s: float = 0.0
    at_s: list[float] = field(default_factory=list)
    ring: Callable[[], None] = lambda: None
    listening: bool = False

    def source(self) -> Source:
        """Return it for the watch."""
        return Source(
            name=self.name,
            group="host",
            interval_s=self.interval_s,
            look=self._look,
            listen=self._listen,
        )

    async def _look(self) -> Sequence[Judgement]:
        self.at_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_s)
        return ()

    def _listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self.ring, self.listening = wake, True
        return self._deaf

    def _deaf(self) -> None:
        self.listening = False


def _watch(*sources: Source, records: list[fleet_pb2.Record] | None = None) -> Watch:
    record = ([] if records is None else records).append
    long_after_boot = Stamp("boot", 3600 * 10**9, 1)
    return Watch(
        sources, Findings(FindingBook(CONDITIONS), record, lambda _: None, lambda: long_after_boot)
    )


async def _run(
    watch: Watch, seconds: float, at: Sequence[tuple[float, Callable[[], None]]] = ()
) -> None:
    loop = asyncio.get_running_loop()
    for when_s, act in at:
        loop.call_at(when_s, act)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_sources_are_looked_at_at_once_and_then_on_the_same_ticks() -> None:
    quick, slow, rare = Looks("quick"), Looks("slow", takes_s=0.3), Looks("rare", interval_s=5.0)
    simulate(_run(_watch(quick.source(), slow.source(), rare.source()), 6.5))
    assert quick.at_s == slow.at_s == [0, 1, 2, 3, 4, 5, 6]
    assert rare.at_s == [0, 5]


def test_a_look_that_somebody_asks_for_comes_at_once_and_changes_no_rhythm() -> None:
    looks = Looks("links", interval_s=5.0)
    simulate(_run(_watch(looks.source()), 11, [(2.0, lambda: looks.ring())]))
    assert looks.at_s == [0, 2.02, 5, 10]
    assert not looks.listening


def test_a_burst_of_changes_is_one_look_and_one_after_it_for_what_came_meanwhile() -> None:
    looks = Looks("links", interval_s=5.0, takes_s=0.5)
    rings = [(2.0 + n / 1000, lambda: looks.ring()) for n in range(20)]
    simulate(_run(_watch(looks.source()), 4.5, [*rings, (2.3, lambda: looks.ring())]))
    assert [round(at_s, 3) for at_s in looks.at_s] == [0, 2.02, 2.54]


def test_look_soon_rings_like_the_source_itself() -> None:
    looks = Looks("links", interval_s=5.0)
    watch = _watch(looks.source())
    simulate(_run(watch, 4, [(1.0, lambda: watch.look_soon("links"))]))
    assert looks.at_s == [0, 1.02]


def test_a_source_that_hangs_is_a_finding_and_the_others_go_on() -> None:
    async def hang() -> Sequence[Judgement]:
        await asyncio.sleep(2)
        raise TimeoutError("no answer within 2 s")

    records: list[fleet_pb2.Record] = []
    looks = Looks("host")
    stuck = Source(name="nfs", group="disk", interval_s=1.0, look=hang)
    watch = _watch(looks.source(), stuck, records=records)
    simulate(_run(watch, 4.5))
    assert looks.at_s == [0, 1, 2, 3, 4]
    (raised,) = (record.finding_raised.finding for record in records)
    assert (raised.component, raised.condition) == ("probe/nfs", "ProbeHang")
    assert raised.evidence == "no answer within 2 s"


def test_a_look_that_takes_long_is_told_as_no_answer_while_it_lasts() -> None:
    async def scenario() -> list[str]:
        quick, stuck = Looks("quick"), Looks("stuck", takes_s=60.0)
        watch = _watch(quick.source(), stuck.source())
        told = [one.trouble for one in watch.latest()]
        running = asyncio.create_task(watch.run())
        for seconds in (2.0, 5.0):
            await asyncio.sleep(seconds)
            told += [one.trouble for one in watch.latest()]
        running.cancel()
        return told

    told: list[str] = []

    async def whole() -> None:
        told.extend(await scenario())

    simulate(whole())
    assert told == ["not read yet", "not read yet", "", "not read yet", "", "no answer for 7 s"]
