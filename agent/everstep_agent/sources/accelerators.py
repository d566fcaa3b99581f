"""Accelerator sources: devices of any vendor but NVIDIA, one source for each tool present."""

import asyncio
from collections.abc import Callable, Sequence

from everstep_agent.detectors.accelerators.detector import AcceleratorDetector
from everstep_agent.detectors.accelerators.reading import AcceleratorLimits, AcceleratorsReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.accelerators.probe import AcceleratorProbe
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.sources.source import Source
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

# The tools take seconds and a share of a core: twice a minute costs less than a thousandth of one.
ACCELERATOR_INTERVAL_S = 30.0
# How often to look for tools and devices that were not there before.
ABSENT_RETRY_S = 600.0
# Deadline of a look: in the worst case four calls of the slowest tool, each with its own deadline.
_DEADLINE_S = 90.0


class AcceleratorSource:
    """Source of one vendor's devices, while there is anything of that vendor."""

    def __init__(
        self,
        probe: AcceleratorProbe,
        view: NodeView,
        detector: AcceleratorDetector,
        stamp: Callable[[], Moment],
        on_changed: Callable[[], None],
    ) -> None:
        self._probe = probe
        self._view = view
        self._detector = detector
        self._stamp = stamp
        self._worker = ProbeWorker(source_name(probe))
        self._absent_until_s = 0.0
        self._was_present = False
        view.accelerators[probe.name] = None
        self._on_changed = on_changed

    def source(self) -> Source:
        """Return it for the watch."""
        return Source(
            name=source_name(self._probe),
            group="accelerators",
            interval_s=ACCELERATOR_INTERVAL_S,
            look=self._look,
        )

    async def _look(self) -> Sequence[Judgement]:
        loop = asyncio.get_running_loop()
        if loop.time() < self._absent_until_s:
            return ()
        reading = await self._worker.call(self._read, _DEADLINE_S)
        before = self._view.accelerators[self._probe.name]
        self._view.accelerators[self._probe.name] = reading
        self._view.blind[source_name(self._probe)] = reading.blind
        if _listed(before) != _listed(reading):
            self._on_changed()
        self._was_present = self._was_present or not reading.absent
        if self._was_present:
            return self._detector.judge(reading, self._stamp())
        self._absent_until_s = loop.time() + ABSENT_RETRY_S
        return ()

    def _read(self) -> AcceleratorsReading:
        if self._probe.present():
            return self._probe.read()
        return AcceleratorsReading(tool=self._probe.name, absent="not installed, or no device")


class AcceleratorSources:
    """All of them."""

    def __init__(
        self,
        probes: Sequence[AcceleratorProbe],
        view: NodeView,
        limits: AcceleratorLimits,
        counters: Counters,
        stamp: Callable[[], Moment],
        on_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_changed`` is called when the list of devices is another one."""
        self._sources = []
        for probe in probes:
            detector = AcceleratorDetector(source_name(probe), limits, counters)
            self._sources.append(AcceleratorSource(probe, view, detector, stamp, on_changed))

    def sources(self) -> tuple[Source, ...]:
        """Return them for the watch."""
        return tuple(source.source() for source in self._sources)


def source_name(probe: AcceleratorProbe) -> str:
    """Return what the source of a probe is called, in findings and in the list of sources."""
    return f"accelerators-{probe.name}"


def _listed(reading: AcceleratorsReading | None) -> set[tuple[str, str, str]]:
    devices = reading.devices if reading else ()
    return {(device.component, device.serial, device.name) for device in devices}
