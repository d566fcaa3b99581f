"""NVIDIA GPUs: what the driver says, and whether it answers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from everstep_agent.detectors.gpu import GpusReading, judge_driver_hang, judge_gpus
from everstep_agent.detectors.judgement import Judgement
from everstep_agent.detectors.kernel import judge_gpu_faults_over
from everstep_agent.detectors.open_finding import OpenFinding
from everstep_agent.inventory import NodeView
from everstep_agent.probes.network import nvidia_gpus_on_bus
from everstep_agent.probes.nvml import DriverHangError, NvmlProbe
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.source import Source

GPU_INTERVAL_S = 1.0


class GpuSource:
    """Asks the driver's process, and judges its answer together with the bus."""

    def __init__(self, probe: NvmlProbe, view: NodeView, sysfs: Path, deadline_s: float) -> None:
        self._probe = probe
        self._view = view
        self._sysfs = sysfs
        self._deadline_s = deadline_s
        self._worker = ProbeWorker("nvml")
        self.expected = 0
        self.boot_id = ""
        self.open_findings: Callable[[], Sequence[OpenFinding]] = lambda: ()
        self.on_changed: Callable[[], None] = lambda: None

    def source(self) -> Source:
        """Return it for the watch."""
        return Source(name="nvml", group="gpu", interval_s=GPU_INTERVAL_S, look=self._look)

    async def _look(self) -> Sequence[Judgement]:
        before = self._view.gpus
        try:
            reading = await self._worker.call(self._read, self._deadline_s)
        except DriverHangError as error:
            return [judge_driver_hang(str(error))]
        self._view.gpus = reading
        if before is None or _uuids(before) != _uuids(reading):
            self.on_changed()
        judgements = judge_gpus(reading, self.expected, self._view.gpus_on_bus)
        over = judge_gpu_faults_over(self.open_findings(), self.boot_id, reading)
        return [*judgements, *over, judge_driver_hang("")]

    def _read(self) -> GpusReading:
        self._view.gpus_on_bus = nvidia_gpus_on_bus(self._sysfs)
        return self._probe.read()


def _uuids(reading: GpusReading) -> set[str]:
    return {gpu.uuid for gpu in reading.gpus}
