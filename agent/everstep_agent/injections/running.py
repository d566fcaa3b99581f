"""Running injections: change the readings they concern, mark the findings they cause."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.reading import GpuReading, GpusReading
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.injections.effects import may_cause
from everstep_agent.injections.overlays import faulty_counters, faulty_gpu, faulty_link
from everstep_agent.injections.specs import (
    GpuSpec,
    KernelSpec,
    LinkDownSpec,
    LinkErrorsSpec,
    Spec,
    WorkSpec,
    XidSpec,
)
from everstep_agent.sources.source import Source, ThreadedLook
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown

# How long after its end an injection may still cause findings, as the time windows of detectors
# remember its errors; a fault that is found later is real.
_TAIL_NS = 900_000_000_000
# A busy node may read a line this long after it was written.
_LATE_LINE_NS = 60_000_000_000


@dataclass(slots=True)
class Running:
    """An injection that runs, and the findings that it caused."""

    id: str
    spec: Spec
    since_ns: int
    caused: set[FindingKey] = field(default_factory=set)


class RunningInjections:
    """Injections that run: overlays readings, and marks what comes of it. Has no clock."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.running: dict[str, Running] = {}
        # The source that reported each finding that was caused; until when the findings of an
        # injection that is over may still come.
        self._told_by: dict[FindingKey, str] = {}
        self._over: dict[FindingKey, int] = {}
        # Until when a line of an injection that is over may still be read.
        self._lines_until_ns = 0
        self.on_caused: Callable[[], None] = lambda: None

    @property
    def ended_keys(self) -> tuple[FindingKey, ...]:
        """Return what was caused by injections that are over."""
        return tuple(self._over)

    def end(self, name: str) -> Running | None:
        """End an injection; what it caused is over, but may linger."""
        ended = self.running.pop(name, None)
        if ended is not None:
            self.lingering(ended.caused)
            if isinstance(ended.spec, XidSpec | KernelSpec):
                self._lines_until_ns = self._now_ns() + _LATE_LINE_NS
        return ended

    def lingering(self, caused: Iterable[FindingKey]) -> None:
        """Say that these findings were caused by what is over now."""
        self._over |= dict.fromkeys(caused, self._now_ns() + _TAIL_NS)

    # --- readings --------------------------------------------------------------------------------

    def gpus(self, reading: GpusReading) -> GpusReading:
        """Return what the driver would say."""
        if not self.running:
            return reading
        return replace(reading, gpus=tuple(self._gpu(gpu) for gpu in reading.gpus))

    @property
    def work_factor(self) -> float:
        """Return how much work a pair test does here; 1: what it does everywhere."""
        works = (one.spec for one in self.running.values() if isinstance(one.spec, WorkSpec))
        return 1.0 + sum(spec.ratio for spec in works)

    def links(self, links: tuple[LinkReading, ...]) -> tuple[LinkReading, ...]:
        """Return what sysfs would say of links."""
        down = {spec.link: spec for spec in self._specs(LinkDownSpec)} if self.running else {}
        if not down:
            return links
        return tuple(
            faulty_link(down[link.name], link) if link.name in down else link for link in links
        )

    def counters(self, readings: tuple[CountersReading, ...]) -> tuple[CountersReading, ...]:
        """Return what links would have counted."""
        for one in self.running.values():
            if isinstance(one.spec, LinkErrorsSpec):
                spec, elapsed_s = one.spec, self._elapsed_s(one)
                readings = tuple(
                    faulty_counters(spec, reading, elapsed_s)
                    if reading.link == spec.link
                    else reading
                    for reading in readings
                )
        return readings

    def _gpu(self, gpu: GpuReading) -> GpuReading:
        for one in self.running.values():
            if isinstance(one.spec, GpuSpec) and one.spec.pci == gpu.pci:
                gpu = faulty_gpu(one.spec, gpu, self._elapsed_s(one))
        return gpu

    def _elapsed_s(self, one: Running) -> float:
        return (self._now_ns() - one.since_ns) / 1e9

    # --- findings --------------------------------------------------------------------------------

    def marked(
        self, source: str, said: Sequence[Judgement], open_findings: Mapping[FindingKey, Finding]
    ) -> Sequence[Judgement]:
        """Return a source's judgements: what was injected says so, and is over with its cause.

        A finding that was open before stays real.
        """
        if not self.running and not self._over and self._now_ns() > self._lines_until_ns:
            return said
        marked = [self._mark(source, one, open_findings) for one in said]
        judged = {one.key for one in said if not isinstance(one, Unknown)}
        return [*marked, *self._ended(source, judged, open_findings)]

    def _mark(
        self, source: str, said: Judgement, open_findings: Mapping[FindingKey, Finding]
    ) -> Judgement:
        if not isinstance(said, Faulty):
            return said
        known = open_findings.get(said.key)
        if known is not None and not known.injected:
            return said
        cause = next(
            (one for one in self.running.values() if may_cause(one.spec, said.finding)), None
        )
        if cause is not None:
            self._told_by[said.key] = source
            # An earlier injection of the same fault is over; its end must not clear this finding.
            self._over.pop(said.key, None)
            if said.key not in cause.caused:
                cause.caused.add(said.key)
                self.on_caused()
        elif said.finding.injected and self._now_ns() <= self._lines_until_ns:
            self._told_by[said.key] = source
            self.lingering({said.key})
            self.on_caused()
        elif self._over.get(said.key, 0) < self._now_ns():
            return said
        return Faulty(replace(said.finding, injected=True))

    def _ended(
        self,
        source: str,
        judged: set[FindingKey],
        open_findings: Mapping[FindingKey, Finding],
    ) -> Iterator[Judgement]:
        for key in list(self._over):
            held = open_findings.get(key)
            if held is None or not held.injected:
                if self._over[key] < self._now_ns():
                    del self._over[key]
            elif key not in judged and self._told_by.get(key, source) == source:
                # As many healthy judgements as the condition needs to clear: it is surely over.
                healthy = Healthy(key, "the injection that caused it is over")
                condition = CONDITIONS.get(key.condition)  # None: of a site's own rules
                yield from (healthy,) * (condition.clear_after if condition else 1)

    def _specs(self, kind: type[LinkDownSpec]) -> Iterator[LinkDownSpec]:
        return (one.spec for one in self.running.values() if isinstance(one.spec, kind))


T = TypeVar("T")
OpenFindings = Callable[[], Sequence[BookEntry]]
_Mark = Callable[[Sequence[Judgement]], Sequence[Judgement]]


def marked(source: Source, running: RunningInjections, open_findings: OpenFindings) -> Source:
    """Return the source with what injections cause marked as such."""

    def mark(said: Sequence[Judgement]) -> Sequence[Judgement]:
        return running.marked(source.name, said, _by_key(open_findings()))

    look = source.look
    if isinstance(look, ThreadedLook):
        return replace(source, look=_threaded(look, mark))

    async def marked_look() -> Sequence[Judgement]:
        return mark(await look())

    return replace(source, look=marked_look)


def _threaded(look: ThreadedLook[T], mark: _Mark) -> ThreadedLook[T]:
    # Must stay a ThreadedLook: the loop that reads all sources gives those a common thread.
    return replace(look, judge=lambda reading: mark(look.judge(reading)))


def _by_key(held: Sequence[BookEntry]) -> Mapping[FindingKey, Finding]:
    return {known.finding.key: known.finding for known in held}
