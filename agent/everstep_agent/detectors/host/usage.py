"""Host detector: memory, swap, load, and the kernel's limits on files, tasks and connections."""

from collections.abc import Iterator
from dataclasses import dataclass

from everstep_agent.detectors.host.limits import DEFAULT_LIMITS as _D
from everstep_agent.detectors.host.limits import HostLimits
from everstep_agent.detectors.readings.counters import Counters, RateWindow
from everstep_common.judging.condition import MINUTE_NS, Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

_OOM_WINDOW_MIN = 10


def _usage_condition(name: str, what: str) -> Condition:
    return Condition(
        name=name,
        component="host",
        meaning=f"{what} are at or above {_D.usage_warning_ratio:.0%} of the kernel's limit in two "
        f"polls; fatal from {_D.usage_fatal_ratio:.0%} on",
        source="gpud: degraded at 80 %, unhealthy at 95 %",
        clears_when="they are below the limit in two polls",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    )


CONDITIONS = (
    Condition(
        name="MemoryLow",
        component="memory",
        meaning=f"less than {_D.memory_available_min_ratio:.0%} of main memory is available in ten "
        "polls",
        source="ours: below it the kernel kills processes",
        clears_when="more than the limit is available in ten polls",
        raise_after=10,
        clear_after=10,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="SwapInUse",
        component="memory",
        meaning=f"more than {_D.swap_used_bytes_max >> 20} MiB are swapped out in six polls",
        source="ours: idle daemons are swapped out once; training processes must not be",
        clears_when="no more than the limit is swapped out in six polls",
        raise_after=6,
        clear_after=6,
    ),
    Condition(
        name="ProcessesKilledForMemory",
        window_ns=MINUTE_NS,
        component="memory",
        meaning="the kernel killed a process because memory ran out, of the node or of a job "
        "within its own limit (its counter oom_kill grew)",
        source="any; info only, for the counter does not tell which: the kernel log does "
        "(NodeOutOfMemory)",
        clears_when=f"none was killed for {_OOM_WINDOW_MIN} min",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="HostOverloaded",
        component="host",
        meaning=f"load over five minutes is above {_D.load_per_cpu_max:g} for each CPU in three "
        "polls",
        source="site rules for LBNL NHC: twice the cores",
        clears_when="it is below in three polls",
        raise_after=3,
        clear_after=3,
    ),
    _usage_condition("OpenFilesNearLimit", "open files (fs.file-max)"),
    _usage_condition("TasksNearLimit", "tasks (kernel.pid_max, kernel.threads-max)"),
    _usage_condition("ConnectionsNearLimit", "tracked connections (nf_conntrack_max)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """Load of the node and of this agent. Counters count since boot; None where unreadable."""

    cpu_busy_ratio: float
    load_1m: float
    memory_total_bytes: int
    memory_available_bytes: int
    load_5m: float = 0.0
    tasks: int = 0
    swap_used_bytes: int = 0
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    network_errors: int | None = None
    agent_cpu_s: float = 0.0
    agent_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Amount of something that is used, and the most that can be."""

    used: int
    limit: int

    @property
    def ratio(self) -> float:
        """Return the share that is used; 0 where there is no limit."""
        return self.used / self.limit if self.limit > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUsage:
    """Resources that the kernel has given out; None where it does not count them."""

    cpus: int = 1
    open_files: Usage | None = None
    tasks_max: int | None = None
    connections: Usage | None = None
    oom_kills: int | None = None
    # When the node booted, in seconds since the epoch, by the wall clock at the reading.
    booted_at_s: int | None = None


def judge_memory(host: HostReading, limits: HostLimits = _D) -> Judgement:
    """Judge whether main memory runs out."""
    ratio = host.memory_available_bytes / max(1, host.memory_total_bytes)
    evidence = f"{host.memory_available_bytes} of {host.memory_total_bytes} bytes are available"
    rule = f"less than {limits.memory_available_min_ratio:.0%} available"
    low = ratio < limits.memory_available_min_ratio
    fault = Fault(message="main memory runs out", rule=rule) if low else None
    return judged("memory", "MemoryLow", evidence, fault)


class UsageDetector:
    """Detector of what changes slowly: kernel limits, load, swap, and who was killed."""

    def __init__(self, limits: HostLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._kills = RateWindow(_OOM_WINDOW_MIN * 60 * 10**9)

    def judge(self, usage: KernelUsage, host: HostReading | None, now: Moment) -> list[Judgement]:
        """Judge one reading; ``host`` is the newest of the readings each second."""
        found = list(self._used("OpenFilesNearLimit", "open files", usage.open_files))
        found += self._used("ConnectionsNearLimit", "tracked connections", usage.connections)
        if usage.oom_kills is not None:
            found.append(self._judge_kills(usage.oom_kills, now))
        if host is not None:
            tasks = Usage(host.tasks, usage.tasks_max) if usage.tasks_max else None
            found += self._used("TasksNearLimit", "tasks", tasks)
            found += [self._judge_load(host.load_5m / max(1, usage.cpus)), self._judge_swap(host)]
        return found

    def _used(self, condition: str, what: str, usage: Usage | None) -> Iterator[Judgement]:
        if usage is None:
            return
        evidence = f"{usage.used} of {usage.limit} {what}"
        if usage.ratio < self._limits.usage_warning_ratio:
            yield judged("host", condition, evidence, None)
            return
        fatal = usage.ratio >= self._limits.usage_fatal_ratio
        limit = self._limits.usage_fatal_ratio if fatal else self._limits.usage_warning_ratio
        fault = Fault(
            message=f"the node runs out of {what}",
            rule=f"{limit:.0%} of the kernel's limit",
            severity=Severity.FATAL if fatal else Severity.DEGRADED,
        )
        yield judged("host", condition, evidence, fault)

    def _judge_load(self, per_cpu: float) -> Judgement:
        limit = self._limits.load_per_cpu_max
        fault = Fault(
            message="more work waits than the CPUs can do",
            rule=f"load over five minutes above {limit:g} for each CPU",
            severity=Severity.INFO,
        )
        evidence = f"load over five minutes is {per_cpu:.2f} for each CPU"
        return judged("host", "HostOverloaded", evidence, fault if per_cpu > limit else None)

    def _judge_swap(self, host: HostReading) -> Judgement:
        limit = self._limits.swap_used_bytes_max
        fault = Fault(
            message="memory is swapped out",
            rule=f"more than {limit} bytes swapped",
            severity=Severity.INFO,
        )
        evidence = f"{host.swap_used_bytes} bytes are swapped out"
        swapping = host.swap_used_bytes > limit
        return judged("memory", "SwapInUse", evidence, fault if swapping else None)

    def _judge_kills(self, kills: int, now: Moment) -> Judgement:
        grown = self._counters.add_reading("host/oom_kills", kills, now)
        # After a longer gap (no agent ran) nobody can say when the kernel killed them.
        is_recent = 0 < grown.seconds <= _OOM_WINDOW_MIN * 60
        killed = self._kills.add_growth(grown.count if is_recent else 0, now.boot_ns)
        evidence = f"{killed} processes killed in {_OOM_WINDOW_MIN} min"
        fault = Fault(
            message="memory ran out, of the node or of a job, and the kernel killed processes",
            rule="the kernel's counter oom_kill grew",
            severity=Severity.INFO,
            action=SuggestedAction.RESTART_JOB,
        )
        return judged("memory", "ProcessesKilledForMemory", evidence, fault if killed else None)
