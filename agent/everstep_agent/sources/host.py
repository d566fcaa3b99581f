"""Host sources: load and memory every second; the rest of the machine more rarely."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from everstep_agent.detectors.host.clock import ClockReading, judge_clock
from everstep_agent.detectors.host.cpu import CpuDetector
from everstep_agent.detectors.host.disks import DiskDetector, StorageReading, judge_gone
from everstep_agent.detectors.host.edac import EdacDetector
from everstep_agent.detectors.host.limits import HostLimits
from everstep_agent.detectors.host.mounts import judge_mounts
from everstep_agent.detectors.host.tasks import TaskDetector, TasksReading
from everstep_agent.detectors.host.usage import (
    HostReading,
    KernelUsage,
    UsageDetector,
    judge_memory,
)
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.probes.machine.clock import read_clock
from everstep_agent.probes.machine.host import HostProbe, UsageProbe
from everstep_agent.probes.machine.host_hardware import HardwareReading, read_hardware
from everstep_agent.probes.machine.network_mounts import NetworkMounts
from everstep_agent.probes.machine.storage import StorageProbe
from everstep_agent.probes.machine.tasks import TaskScan
from everstep_agent.probes.own_cost import AgentCost, OwnCost
from everstep_agent.sources.source import Source, threaded
from everstep_common.clock import StampClock
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement

HOST_INTERVAL_S = 1.0
# Intervals of looks. Debounced conditions count looks, so a change here changes how long they take;
# see the meaning of each condition first.
USAGE_INTERVAL_S = 10.0
HARDWARE_INTERVAL_S = 60.0
# All processes are looked at once a minute, a sixth of them at a time.
TASKS_INTERVAL_S = 10.0
_TASK_SLICES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Settings of the host sources: paths, thresholds, and how long a read may take."""

    proc: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    fstab: Path = Path("/etc/fstab")
    limits: HostLimits = field(default_factory=HostLimits)
    deadline_s: float = 5.0


def host_sources(
    settings: HostSettings,
    view: NodeView,
    counters: Counters,
    stamp: StampClock,
    probe: HostProbe | None = None,
) -> tuple[Source, ...]:
    """Return the sources that tell of the host, without its disks."""
    deadline_s = settings.deadline_s
    host = HostJudge(settings.limits, view, counters, stamp)
    every_second = probe or HostProbe(settings.proc, settings.sysfs)
    usage = UsageProbe(settings.proc)
    tasks = TaskScan(settings.proc, _TASK_SLICES)

    def read_slowly() -> tuple[KernelUsage, ClockReading]:
        return usage.read(), read_clock(settings.sysfs)

    def read_sysfs() -> HardwareReading:
        return read_hardware(settings.sysfs)

    return (
        Source(
            name="host",
            group="host",
            interval_s=HOST_INTERVAL_S,
            look=threaded("host", deadline_s, every_second.read, host.each_second),
        ),
        Source(
            name="host_limits",
            group="host",
            interval_s=USAGE_INTERVAL_S,
            look=threaded("host_limits", deadline_s, read_slowly, host.usage_and_clock),
        ),
        Source(
            name="host_hardware",
            group="host",
            interval_s=HARDWARE_INTERVAL_S,
            look=threaded("host_hardware", deadline_s, read_sysfs, host.hardware),
        ),
        Source(
            name="tasks",
            group="host",
            interval_s=TASKS_INTERVAL_S,
            look=threaded("tasks", deadline_s, tasks.read, host.tasks),
        ),
    )


class HostJudge:
    """Judge of host readings: hands each to its detectors, and to whoever shows it."""

    def __init__(
        self, limits: HostLimits, view: NodeView, counters: Counters, stamp: StampClock
    ) -> None:
        self._limits = limits
        self._view = view
        self._stamp = stamp
        self._usage = UsageDetector(limits, counters)
        self._cpus = CpuDetector(limits, counters)
        self._modules = EdacDetector(limits, counters)
        self._tasks = TaskDetector(limits)

    def each_second(self, reading: HostReading) -> Sequence[Judgement]:
        """Judge what is read every second."""
        self._view.host = reading
        return [judge_memory(reading, self._limits)]

    def usage_and_clock(self, reading: tuple[KernelUsage, ClockReading]) -> Sequence[Judgement]:
        """Judge the kernel's limits and its clock."""
        usage, clock = reading
        self._view.usage, self._view.clock = usage, clock
        self._view.blind["clock"] = (
            "" if clock.synchronized is not None else "the kernel may not be asked (adjtimex)"
        )
        judgements = self._usage.judge(usage, self._view.host, self._stamp())
        return [*judgements, *judge_clock(clock, self._limits)]

    def hardware(self, reading: HardwareReading) -> Sequence[Judgement]:
        """Judge CPUs and memory modules."""
        now = self._stamp()
        self._view.modules = reading.modules
        self._view.blind["memory errors"] = "" if reading.edac else "no EDAC driver is loaded"
        return [*self._cpus.judge(reading.cpus, now), *self._modules.judge(reading.modules, now)]

    def tasks(self, reading: TasksReading | None) -> Sequence[Judgement]:
        """Judge all processes when the last of them was looked at."""
        if reading is None:
            return ()
        self._view.tasks = reading
        return self._tasks.judge(reading, self._stamp())


def _left_out_of_a_pod(environ: Mapping[str, str]) -> str:
    """Return which file systems of the node an agent in a pod does not see; "" for any other."""
    if "KUBERNETES_SERVICE_HOST" not in environ:
        return ""
    return "this agent is a pod, and sees only those that are mounted into it"


# How often to ask every disk for its free space: a disk does not fill up in seconds.
DISK_INTERVAL_S = 10.0
# Each look asks a server: 12,500 nodes with three mounts each are 1,250 questions a second.
MOUNT_INTERVAL_S = 30.0


def disk_sources(
    settings: HostSettings,
    view: NodeView,
    open_keys: Callable[[], Collection[FindingKey]] = tuple,
    mounts: NetworkMounts | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[Source, ...]:
    """Return the sources that tell of the disks; ``open_keys``: what may have to end."""
    view.blind["file systems"] = _left_out_of_a_pod(environ)
    storage = StorageProbe(settings.proc, settings.sysfs, settings.fstab)
    remote = mounts or NetworkMounts(settings.proc, settings.limits.mount_deadline_s)
    detector, required = DiskDetector(settings.limits), settings.limits.mounts

    def judge_disks(reading: StorageReading) -> Sequence[Judgement]:
        view.disks = reading.disks
        gone = judge_gone(open_keys(), reading.mounts, required)
        return [*detector.judge(reading), *gone]

    async def look_at_mounts() -> Sequence[Judgement]:
        view.mounts = await remote.read()
        left_out = f"{remote.left_out} of them are not asked" if remote.left_out else ""
        view.blind["network file systems"] = left_out
        return judge_mounts(view.mounts)

    return (
        Source(
            name="disks",
            group="disk",
            interval_s=DISK_INTERVAL_S,
            look=threaded("disks", settings.deadline_s, storage.read, judge_disks),
        ),
        Source(name="mounts", group="disk", interval_s=MOUNT_INTERVAL_S, look=look_at_mounts),
    )


# To find its children psutil reads every process of the node: milliseconds.
INTERVAL_S = 60.0


def own_cost_source(view: NodeView, deadline_s: float) -> Source:
    """Return the source that tells what the agent costs; nothing is judged of it."""

    def take(cost: AgentCost) -> Sequence[Judgement]:
        view.own_cost = cost
        return ()

    look = threaded("own_cost", deadline_s, OwnCost().read, take)
    return Source(name="own_cost", group="host", interval_s=INTERVAL_S, look=look)
