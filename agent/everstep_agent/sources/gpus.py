"""GPU sources: readings and events of the NVIDIA driver, in a rhythm and out of turn."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.gpus.presence import judge_driver_hang
from everstep_agent.detectors.gpus.reading import GpuEvent, GpusReading
from everstep_agent.detectors.kernel import KernelLine, judge_gpu_faults_over
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.gpus.nvml import DriverHangError, NvmlProbe
from everstep_agent.probes.links.network import nvidia_gpus_on_bus
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.sources.source import Source
from everstep_common.clock import StampClock
from everstep_common.judging.book import BookEntry
from everstep_common.judging.judgement import Judgement

GPU_INTERVAL_S = 1.0
# Driver events wake this source at once; without one it is read only this often.
_EVENTS_INTERVAL_S = 60.0
# The PCI bus is read at every so many looks: hundreds of small files, and cards rarely change.
_BUS_LOOKS = 60
_BUS_DEADLINE_S = 5.0


class GpuSource:
    """Source of GPU readings: asks the driver's process, and judges it with the bus."""

    def __init__(
        self,
        probe: NvmlProbe,
        view: NodeView,
        sysfs: Path,
        detector: GpuDetector,
        stamp: StampClock,
    ) -> None:
        self._probe = probe
        self._view = view
        self._sysfs = sysfs
        self._detector = detector
        self._stamp = stamp
        self._worker = ProbeWorker("pci")
        self._looks = 0
        self._events: list[GpuEvent] = []
        self._wake: Callable[[], None] = _nobody
        self._wake_events: Callable[[], None] = _nobody
        self.open_findings: Callable[[], Sequence[BookEntry]] = lambda: ()
        self.on_changed: Callable[[], None] = _nobody
        # Judges Xids that came as driver events, as those of the kernel log are judged.
        self.judge_lines: Callable[[Sequence[KernelLine]], Sequence[Judgement]] = lambda _: ()
        # Changes a reading while a fault is injected.
        self.overlay: Callable[[GpusReading], GpusReading] = lambda reading: reading
        probe.on_event = self._take_event

    def sources(self) -> tuple[Source, ...]:
        """Return them for the watch."""
        return (
            Source(
                name="nvml",
                group="gpu",
                interval_s=GPU_INTERVAL_S,
                look=self._look,
                listen=self._listen,
                workers=(self._worker,),
            ),
            Source(
                name="nvml_events",
                group="gpu",
                interval_s=_EVENTS_INTERVAL_S,
                look=self._look_at_events,
                listen=self._listen_to_events,
            ),
        )

    def newest(self) -> GpusReading | None:
        """Return what the detectors have seen last."""
        return self._view.gpus

    async def read(self) -> GpusReading:
        """Read all GPUs, past the detectors. Raises DriverHangError, and ProbeError."""
        return self._detector.named(self.overlay(await self._probe.read_aside()))

    async def _look(self) -> Sequence[Judgement]:
        before = self._view.gpus
        if self._looks % _BUS_LOOKS == 0:
            self._view.gpus_on_bus = await self._worker.call(
                lambda: nvidia_gpus_on_bus(self._sysfs), _BUS_DEADLINE_S
            )
        self._looks += 1
        try:
            reading = self._detector.named(self.overlay(await self._probe.read()))
        except DriverHangError as error:
            return judge_driver_hang(str(error))
        self._view.gpus = reading
        if before is None or _uuids(before) != _uuids(reading):
            self.on_changed()
        now = self._stamp()
        judgements = self._detector.judge(reading, self._view.gpus_on_bus, now)
        over = judge_gpu_faults_over(self.open_findings(), now.boot_id, reading)
        return [*judgements, *over, *judge_driver_hang("")]

    async def _look_at_events(self) -> Sequence[Judgement]:
        """Judge Xids without asking the driver anything: it may hang by now."""
        events, self._events = self._events, []
        if not self._view.kernel_log:
            # The kernel log has the same Xids with their text; counted twice they would be a burst.
            return ()
        return self.judge_lines([_as_line(event) for event in events])

    def _take_event(self, event: GpuEvent) -> None:
        if event.kind == "xid":
            self._events.append(event)
            self._wake_events()
        else:
            # A memory error: the counters of the next complete reading say how many, and which.
            self._probe.complete_soon()
        self._wake()

    def _listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wake = wake
        return lambda: setattr(self, "_wake", _nobody)

    def _listen_to_events(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wake_events = wake
        return lambda: setattr(self, "_wake_events", _nobody)


def _nobody() -> None:
    """Wake nobody."""


def _as_line(event: GpuEvent) -> KernelLine:
    """Return an Xid in the words of the kernel log, where the same error may be read as well."""
    return KernelLine(f"NVRM: Xid (PCI:{event.pci}): {event.data}, as NVML told (no text)")


def _uuids(reading: GpusReading) -> set[str]:
    return {gpu.uuid for gpu in reading.gpus}


# A healthy driver answers within milliseconds; an Xid has to be a finding within 200 ms.
DEADLINE_S = 0.1


class FreshGpus:
    """Reader of the GPUs out of turn; a look that takes longer is used later."""

    def __init__(
        self,
        look: Callable[[], Awaitable[object]],
        view: NodeView,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._look = look
        self._view = view
        self._deadline_s = deadline_s
        self._running: asyncio.Task[None] | None = None

    async def read(self) -> GpusReading | None:
        """Return a reading that began after the call; None when none came in time."""
        if self._running is not None and not self._running.done():
            return None
        before = self._view.gpus
        self._running = asyncio.create_task(self._look_once(), name="fresh-gpus")
        done, _ = await asyncio.wait({self._running}, timeout=self._deadline_s)
        if not done:
            return None
        self._running.result()
        return self._view.gpus if self._view.gpus is not before else None

    async def _look_once(self) -> None:
        await self._look()
