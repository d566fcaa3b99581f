"""InfiniBand source: the ports of every HCA (InfiniBand and RoCE), and their counters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.links.detector import LinkDetector
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.hca import HcaReading, judge_hcas
from everstep_agent.detectors.links.infiniband import DeviceFile, InfinibandDetector
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.probes.links.hca import read_hcas
from everstep_agent.probes.links.infiniband import InfinibandProbe
from everstep_agent.probes.links.netlink import LinkEvents
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.sources.link_readings import LinkReadings
from everstep_agent.sources.network import COUNTERS_INTERVAL_NS, LINK_INTERVAL_S, NetworkSettings
from everstep_agent.sources.source import Source
from everstep_common.clock import StampClock
from everstep_common.judging.judgement import Judgement

# Temperatures and PCIe links change slowly, and reading a sensor asks the card's firmware.
_HCAS_INTERVAL_NS = 30_000_000_000


@dataclass(frozen=True, slots=True)
class _Reading:
    ports: tuple[LinkReading, ...]
    counters: tuple[CountersReading, ...] | None
    files: tuple[DeviceFile, ...]
    hcas: tuple[HcaReading, ...] | None


class InfinibandSource:
    """Source of port states, every second, and of their counters every few seconds."""

    def __init__(
        self,
        settings: NetworkSettings,
        readings: LinkReadings,
        counters: Counters,
        stamp: StampClock,
    ) -> None:
        self._settings = settings
        self._readings = readings
        self._stamp = stamp
        self._probe = InfinibandProbe(str(settings.sysfs), str(settings.dev))
        self._worker = ProbeWorker("infiniband")
        required = [name for name in settings.required if "/" in name]
        self._ports = LinkDetector(required, counters, settings.links, "infiniband")
        self._errors = InfinibandDetector(counters, self._ports.history, settings.infiniband)
        self._due_ns = self._hcas_due_ns = 0

    def source(self, hears: Callable[[str], bool]) -> Source:
        """Return it for the watch. ``hears`` says which interfaces stand for ports."""
        return Source(
            name="infiniband",
            group="ib",
            interval_s=LINK_INTERVAL_S,
            look=self._look,
            listen=LinkEvents(hears).listen,
            workers=(self._worker,),
        )

    async def _look(self) -> Sequence[Judgement]:
        now = self._stamp()
        reading = await self._worker.call(
            lambda: self._read(now.boot_ns), self._settings.deadline_s
        )
        overlay = self._settings.overlay
        ports = overlay.links(reading.ports)
        self._readings.take_ports(ports)
        self._ports.beside = self._readings.beside_the_rails()
        judgements = list(self._ports.judge(ports, now))
        if reading.counters is not None:
            self._due_ns = now.boot_ns + COUNTERS_INTERVAL_NS
            counters = overlay.counters(reading.counters)
            self._readings.take_port_counters(counters)
            made_up = counters != reading.counters
            judgements += self._errors.judge(counters, now, injected=made_up)
            self._readings.view.link_errors = self._errors.minutes.columns(now)
            judgements += self._errors.judge_files(reading.files)
        if reading.hcas is not None:
            self._hcas_due_ns = now.boot_ns + _HCAS_INTERVAL_NS
            judgements += judge_hcas(reading.hcas, self._settings.infiniband)
        return judgements

    def _read(self, boot_ns: int) -> _Reading:
        ports = self._probe.read()
        hcas = read_hcas(str(self._settings.sysfs)) if boot_ns >= self._hcas_due_ns else None
        if boot_ns < self._due_ns:
            return _Reading(ports, None, (), hcas)
        return _Reading(ports, self._probe.read_counters(), self._probe.read_files(), hcas)
