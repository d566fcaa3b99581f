"""Everything that is watched on this node: one wiring for the daemon and the one-shot commands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep_agent.config import AgentConfig
from everstep_agent.detectors.links import LinkDetector
from everstep_agent.findings import Findings
from everstep_agent.inventory import NodeView
from everstep_agent.probes.host import HostProbe
from everstep_agent.probes.kernel_log import Position, kernel_log
from everstep_agent.probes.nvml import NvmlDeadlines, NvmlProbe
from everstep_agent.source import Source
from everstep_agent.sources.gpus import GpuSource
from everstep_agent.sources.host import host_sources
from everstep_agent.sources.kernel_log import KernelLogSource
from everstep_agent.sources.network import network_sources
from everstep_agent.watch import Watch
from everstep_common.clock import StampClock

# What a source may need after its own deadlines before it counts as stuck.
_GPU_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What an agent before this one noted, and where this one notes it for the next."""

    notes: Mapping[str, str]
    keep: Callable[[str, str], None]


class NodeWatch:
    """The sources of one node, wired to their detectors, and what they share."""

    def __init__(
        self, config: AgentConfig, findings: Findings, memory: Memory, stamp: StampClock
    ) -> None:
        self._config = config
        self._findings = findings
        self._memory = memory
        self._stamp = stamp
        self.view = NodeView()
        self.nvml = NvmlProbe(
            NvmlDeadlines(first_s=config.gpu_first_deadline_s, next_s=config.gpu_deadline_s),
            proc=config.proc,
        )
        self.kernel_log = self._make_kernel_log()
        self.gpus = self._make_gpus()
        self.watch = Watch(self._sources(), findings)

    def close(self) -> None:
        """End the processes that sources have started."""
        self.nvml.close()

    def _sources(self) -> tuple[Source, ...]:
        config, view = self._config, self.view
        detector = LinkDetector(config.links_required)
        return (
            self.kernel_log.source(config.kernel_log_interval_s),
            *host_sources(HostProbe(), view, config.probe_deadline_s),
            *network_sources(config.sysfs, detector, view, config.probe_deadline_s),
            self.gpus.source(),
        )

    def _make_kernel_log(self) -> KernelLogSource:
        config, book = self._config, self._findings.book
        name, _, place = self._memory.notes.get("kernel_log", " -1").rpartition(" ")
        log = kernel_log(config.kernel_log, self._stamp().boot_id, Position(name, int(place)))
        source = KernelLogSource(log, self.view, config.probe_deadline_s)
        source.on_position = self._keep_position
        source.quiet = lambda: book.quiet(self._stamp())
        # Also where it begins: killed before it remembers the first line, the agent reads it again.
        self._keep_position(log.position)
        return source

    def _keep_position(self, position: Position) -> None:
        self._memory.keep("kernel_log", f"{position.source} {position.place}")

    def _make_gpus(self) -> GpuSource:
        config, book = self._config, self._findings.book
        deadline_s = max(config.gpu_first_deadline_s, config.gpu_deadline_s) + _GPU_MARGIN_S
        source = GpuSource(self.nvml, self.view, config.sysfs, deadline_s)
        source.expected, source.boot_id = config.gpus_expected, self._stamp().boot_id
        source.open_findings = lambda: book.open_findings
        return source
