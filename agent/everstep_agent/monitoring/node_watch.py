"""Node watch: wires all sources to their detectors, for the daemon and for one-shot commands."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.inventory.expected import ExpectedInventory
from everstep_agent.detectors.kernel import KernelLine, XidSettings
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.injections.kernel_lines import InjectedLog
from everstep_agent.injections.running import RunningInjections, marked
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.memory import (
    Memory,
    dump_counters,
    dump_xids,
    keep_counters,
    load_counters,
    load_xids,
)
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.probes.accelerators.vendors import accelerator_probes
from everstep_agent.probes.gpus.nvml import NvmlDeadlines, NvmlProbe
from everstep_agent.probes.kernel.kernel_log import KernelLog, Position
from everstep_agent.sources.accelerators import AcceleratorSources
from everstep_agent.sources.gpus import FreshGpus, GpuSource
from everstep_agent.sources.host import HostSettings, disk_sources, host_sources, own_cost_source
from everstep_agent.sources.infiniband import InfinibandSource
from everstep_agent.sources.inventory import Expectation, inventory_source
from everstep_agent.sources.kernel_log import (
    ARCHIVE,
    Kept,
    KernelLogSource,
    fabric_manager_source,
    kernel_log,
    pstore_source,
    system_log_source,
)
from everstep_agent.sources.link_readings import LinkReadings
from everstep_agent.sources.network import NetworkSettings, NetworkSource
from everstep_agent.sources.services import ServicesSettings, services_source
from everstep_agent.sources.source import Source
from everstep_agent.tables.fault_tables import load_tables
from everstep_agent.tables.site_rules import NO_SITE_RULES, SiteRules
from everstep_common.clock import StampClock
from everstep_common.config import load


def _nobody() -> None:
    """Nobody is told."""


@dataclass(frozen=True, slots=True)
class NodeListeners:
    """Who hears at once of what the sources of a node see."""

    # Lines of the kernel log, in their order.
    kernel_lines: Callable[[Sequence[KernelLine]], None] = lambda _: None
    # The list of GPUs or other accelerators is another one.
    devices_changed: Callable[[], None] = _nobody


class NodeWatch:
    """The sources of one node, wired to their detectors, and what they share.

    Raises ConfigError for a wrong inventory.
    """

    def __init__(
        self,
        config: AgentConfig,
        findings: Findings,
        memory: Memory,
        stamp: StampClock,
        around_log: Callable[[KernelLog], KernelLog] = lambda log: log,
        *,
        site: SiteRules = NO_SITE_RULES,
        listeners: NodeListeners = NodeListeners(),
    ) -> None:
        self._listeners = listeners
        self._rules = site.rules
        self._around_log = around_log
        self._config = config
        self._findings = findings
        self._memory = memory
        self._stamp = stamp
        self.view = NodeView()
        self.injections = RunningInjections(self.boot_ns)
        self.counters = load_counters(memory.notes.get("counters", "{}"))
        self.expected = load(
            ExpectedInventory, config.inventory_file, "'everstep-agent inventory' writes one"
        )
        self.nvml = NvmlProbe(
            NvmlDeadlines(first_s=config.gpu_first_deadline_s, next_s=config.gpu_deadline_s),
            proc=config.proc,
        )
        self.kernel_log = self._make_kernel_log()
        self.gpus = self._make_gpus()
        self.accelerators = AcceleratorSources(
            accelerator_probes(config.sysfs),
            self.view,
            config.signals.accelerators,
            self.counters,
            stamp,
            listeners.devices_changed,
        )
        self.watch = Watch(self._sources(), findings)
        self.injected_log.wake = lambda: self.watch.look_soon("kernel_log")

    def boot_ns(self) -> int:
        """Return the time on the boot clock."""
        return self._stamp().boot_ns

    def look_soon(self) -> None:
        """Have everything looked at at once."""
        for source in self.watch.sources:
            self.watch.look_soon(source.name)

    async def keep_counters(self) -> None:
        """Note the counters for the next agent, until cancelled."""
        await keep_counters(self.counters, self._keep_counters)

    def _keep_counters(self, text: str) -> None:
        self._memory.keep("counters", text)

    def close(self) -> None:
        """Note the counters, and end the processes that sources have started."""
        self._keep_counters(dump_counters(self.counters))
        self.nvml.close()

    def _sources(self) -> tuple[Source, ...]:
        """Return them; what an injection causes is marked where there may be one, or was."""
        if not self._config.fault_injection and "injections" not in self._memory.notes:
            return self._real_sources()
        book = self._findings.book
        return tuple(
            marked(source, self.injections, lambda: book.open_findings)
            for source in self._real_sources()
        )

    def _real_sources(self) -> tuple[Source, ...]:
        config, view = self._config, self.view
        expectation = Expectation(self.expected, view, lambda: self._findings.book.open_keys)
        return (
            self.kernel_log.source(config.kernel_log_interval_s),
            pstore_source(
                (config.sysfs / "fs/pstore", ARCHIVE), view, self._stamp, config.probe_deadline_s
            ),
            *host_sources(self._host(), view, self.counters, self._stamp),
            *disk_sources(self._host(), view, lambda: self._findings.book.open_keys),
            services_source(self._services(), view, self.counters, self._stamp),
            *link_sources(self._network(), view, self.counters, self._stamp),
            *self.gpus.sources(),
            *self._daemon_logs(),
            *self.accelerators.sources(),
            own_cost_source(view, config.probe_deadline_s),
            inventory_source(expectation, config.sysfs, config.probe_deadline_s),
        )

    def _host(self) -> HostSettings:
        config = self._config
        return HostSettings(
            proc=config.proc,
            sysfs=config.sysfs,
            limits=config.signals.host,
            deadline_s=config.probe_deadline_s,
        )

    def _services(self) -> ServicesSettings:
        config = self._config
        return ServicesSettings(
            sysfs=config.sysfs,
            limits=config.signals.services,
            deadline_s=config.probe_deadline_s,
            open_keys=lambda: self._findings.book.open_keys,
        )

    def _network(self) -> NetworkSettings:
        config, signals = self._config, self._config.signals
        return NetworkSettings(
            sysfs=config.sysfs,
            deadline_s=config.probe_deadline_s,
            required=(*config.links_required, *self.expected.required_links),
            links=signals.links,
            infiniband=signals.infiniband,
            ethernet=signals.ethernet,
            overlay=self.injections,
        )

    def _make_kernel_log(self) -> KernelLogSource:
        config, book = self._config, self._findings.book
        name, _, place = self._memory.notes.get("kernel_log", " -1").rpartition(" ")
        log = kernel_log(
            config.kernel_log, self._stamp().boot_id, Position(name, int(place)), self._rules
        )
        self.injected_log = InjectedLog(self._around_log(log), config.kernel_log)
        source = KernelLogSource(
            self.injected_log, self.view, config.probe_deadline_s, self._xids()
        )
        source.now = self._stamp
        source.on_position = self._keep_position
        source.on_lines = self._listeners.kernel_lines
        source.on_history = lambda seen: self._memory.keep("xids", dump_xids(seen))
        source.quiet = lambda: book.judge_quiet_events(self._stamp())
        source.open_findings = lambda: book.open_findings
        source.know(book.open_finding)
        source.ask_gpus = FreshGpus(lambda: self.watch.probe_now({"gpu"}), self.view).read
        # Also saved before the first line: an agent killed before then reads from the same place.
        self._keep_position(log.position)
        return source

    def _xids(self) -> XidSettings:
        overrides = {int(code): say for code, say in self._config.signals.xid.items()}
        history = load_xids(self._memory.notes.get("xids", "[]"))
        return XidSettings(load_tables(), overrides, history, self._rules)

    def _keep_position(self, position: Position) -> None:
        self._memory.keep("kernel_log", f"{position.source} {position.place}")

    def _daemon_logs(self) -> Iterator[Source]:
        config, deadline_s = self._config, self._config.probe_deadline_s
        manager = config.fabric_manager_log
        yield fabric_manager_source(manager, *self._noted("fabric_manager_log"), deadline_s)
        if config.system_log is not None:
            yield system_log_source(config.system_log, *self._noted("system_log"), deadline_s)

    def _noted(self, note: str) -> tuple[Position, Kept]:
        """Return how far a log was judged, and how to keep that it was judged further."""
        name, _, place = self._memory.notes.get(note, " -1").rpartition(" ")

        def keep(position: Position) -> None:
            self._memory.keep(note, f"{position.source} {position.place}")

        return Position(name, int(place)), Kept(keep, self._findings.book.open_finding)

    def _make_gpus(self) -> GpuSource:
        config, book = self._config, self._findings.book
        wanted = config.gpus_expected or self.expected.gpus.wanted
        detector = GpuDetector(config.signals.gpu, self.counters, wanted)
        source = GpuSource(self.nvml, self.view, config.sysfs, detector, self._stamp)
        source.open_findings = lambda: book.open_findings
        source.judge_lines = self.kernel_log.judge_told
        source.overlay = self.injections.gpus
        source.on_changed = self._listeners.devices_changed
        return source


def link_sources(
    settings: NetworkSettings, view: NodeView, counters: Counters, stamp: StampClock
) -> tuple[Source, ...]:
    """Return the sources that tell of the network, Ethernet and InfiniBand."""
    readings = LinkReadings(view)
    network = NetworkSource(settings, readings, counters, stamp)
    infiniband = InfinibandSource(settings, readings, counters, stamp)
    return network.source(), infiniband.source(network.hears)
