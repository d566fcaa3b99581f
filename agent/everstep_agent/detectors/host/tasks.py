"""Task detector: processes that are stuck in the kernel, and ended ones that nobody collects."""

from collections.abc import Sequence
from dataclasses import dataclass

from everstep_agent.detectors.host.limits import DEFAULT_LIMITS as _D
from everstep_agent.detectors.host.limits import HostLimits
from everstep_common.judging.condition import MINUTE_NS, Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

# How many process names a finding lists at most.
_TOLD = 5
# Looks come once a minute; those out of turn (an ordered check) must not count as minutes, so a
# process must have been stuck for this long as well.
_DRIVER_LOOKS = 5
_DRIVER_AGE_NS = (_DRIVER_LOOKS - 1) * MINUTE_NS

CONDITIONS = (
    Condition(
        name="TasksStuck",
        window_ns=5 * MINUTE_NS,
        component="host/tasks",
        meaning=f"a process waits in the kernel (state D) for {_D.stuck_tasks_age_s:g} s or longer;"
        " the kernel's own threads, which may rest so, are left out",
        source="Meta's gcm (check_dstate): 300 s; only info where all are one user's, and do not "
        "wait in a driver or file system of the node: a user can have processes wait so",
        clears_when="no process has waited for so long",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="DriverTasksStuck",
        window_ns=MINUTE_NS,
        component="driver/nvidia",
        meaning='one and the same process of root or a service whose name begins with "nvidia", '
        "or kernel thread, waits in the "
        f"kernel (state D) in {_DRIVER_LOOKS} polls, a minute apart",
        source="gpud: five checks, a minute apart; the driver holds it, and a reset may not help",
        clears_when="none of them waits for so long any more",
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="ZombieProcesses",
        component="host/tasks",
        meaning=f"{_D.zombies_max} or more ended processes are not collected in five polls, a "
        f"minute apart; from {_D.zombies_many} on a reboot is suggested",
        source="AWS's node monitoring agent: 20, five times; gpud: 1,000; only info where the "
        "parents are programs of users",
        clears_when="there are fewer in two polls",
        raise_after=5,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A process in state D; pid and start time tell it from another with the same number."""

    pid: int
    started_ticks: int
    name: str
    kernel: bool = False
    uid: int = 0
    # The kernel function in which it waits; empty where the kernel does not tell.
    where: str = ""


@dataclass(frozen=True, slots=True)
class TasksReading:
    """All processes, looked at once."""

    waiting: tuple[WaitingTask, ...] = ()
    # Ended processes that nobody collects: those of the system's programs, and of users' programs.
    zombies: int = 0
    zombies_of_users: int = 0
    processes: int = 0


class TaskDetector:
    """Detector of stuck tasks; remembers since when each waits: most do for milliseconds."""

    def __init__(self, limits: HostLimits) -> None:
        self._limits = limits
        self._since: dict[tuple[int, int], tuple[int, int]] = {}

    def judge(self, tasks: TasksReading, now: Moment) -> list[Judgement]:
        """Judge one look at all processes."""
        before = self._since
        self._since = {
            (one.pid, one.started_ticks): _seen_again(before.get((one.pid, one.started_ticks)), now)
            for one in tasks.waiting
        }
        return [
            self._judge_driver(tasks.waiting, now),
            self._judge_stuck(tasks.waiting, now),
            self._judge_zombies(tasks),
        ]

    def _judge_driver(self, waiting: Sequence[WaitingTask], now: Moment) -> Judgement:
        stuck = [
            task
            for task in waiting
            # A user's process is called, and waits, as its user likes.
            if task.name.startswith("nvidia")
            and is_of_system(task.uid)
            and self._of(task)[1] >= _DRIVER_LOOKS
            and now.boot_ns - self._of(task)[0] >= _DRIVER_AGE_NS
        ]
        fault = Fault(
            message="the NVIDIA driver does not let go of its own processes",
            rule=f"a process named nvidia* in state D in {_DRIVER_LOOKS} polls",
            severity=Severity.FATAL,
            action=SuggestedAction.REBOOT_NODE,
        )
        evidence = self._told(stuck, now) or "no process of the driver is stuck"
        return judged("driver/nvidia", "DriverTasksStuck", evidence, fault if stuck else None)

    def _judge_stuck(self, waiting: Sequence[WaitingTask], now: Moment) -> Judgement:
        limit_ns = self._limits.stuck_tasks_age_s * 1e9
        stuck = [
            task
            for task in waiting
            if not task.kernel and now.boot_ns - self._of(task)[0] >= limit_ns
        ]
        rule = f"state D for {limit_ns / 1e9:g} s or longer"
        fault = Fault(
            message="processes are stuck in the kernel and cannot be killed",
            rule=rule,
            action=SuggestedAction.REBOOT_NODE,
        )
        if stuck and _may_be_willed(stuck):
            fault = Fault(
                message=f"processes of user {stuck[0].uid} wait in the kernel, as a user can have "
                "them do",
                rule=f"{rule}, all of one user, and not in a driver or file system of the node",
                severity=Severity.INFO,
            )
        evidence = self._told(stuck, now) or "no process is stuck"
        return judged("host/tasks", "TasksStuck", evidence, fault if stuck else None)

    def _judge_zombies(self, tasks: TasksReading) -> Judgement:
        zombies = tasks.zombies
        if zombies < self._limits.zombies_max <= tasks.zombies_of_users:
            return _judge_zombies_of_users(tasks.zombies_of_users, self._limits.zombies_max)
        many = zombies >= self._limits.zombies_many
        limit = self._limits.zombies_many if many else self._limits.zombies_max
        fault = Fault(
            message="ended processes are not collected by their parents",
            rule=f"{limit} or more zombies",
            action=SuggestedAction.REBOOT_NODE if many else SuggestedAction.WATCH,
        )
        evidence = f"{zombies} zombies"
        return judged(
            "host/tasks", "ZombieProcesses", evidence, fault if zombies >= limit else None
        )

    def _of(self, task: WaitingTask) -> tuple[int, int]:
        return self._since[(task.pid, task.started_ticks)]

    def _told(self, stuck: Sequence[WaitingTask], now: Moment) -> str:
        oldest_first = sorted(stuck, key=lambda task: self._of(task)[0])
        told = [
            f"{task.name} (pid {task.pid}, {(now.boot_ns - self._of(task)[0]) // MINUTE_NS} min"
            f"{', in ' + task.where if task.where else ''})"
            for task in oldest_first[:_TOLD]
        ]
        more = len(stuck) - len(told)
        return f"{len(stuck)} waiting: {', '.join(told)}{f' and {more} more' if more else ''}" * (
            len(told) > 0
        )


# Users begin here (SYS_UID_MAX of login.defs): below are services, such as nvidia-persistenced.
_USERS_FROM = 1000
# Where a process waits for a driver or a file system that only root can have made hang. All other
# places it may have chosen: behind a vfork, or in a FUSE file system that its user serves.
_OF_DEVICES = ("nv", "uvm_", "os_", "mlx", "ib_", "uverbs", "rdma", "amdgpu", "kfd", "nvme")
_OF_NODE = (*_OF_DEVICES, "rpc_", "nfs", "ptlrpc", "ceph", "xfs_", "ext4_", "jbd2", "md_")


def is_of_system(uid: int) -> bool:
    """Return whether a user is root or a service, and nobody who runs jobs."""
    return uid < _USERS_FROM


def is_in_driver(where: str) -> bool:
    """Return whether a kernel function is one of a device's driver on this node."""
    return where.startswith(_OF_DEVICES)


def _may_be_willed(stuck: Sequence[WaitingTask]) -> bool:
    """Return whether one user alone may have had these processes wait, for no fault of the node."""
    users = {task.uid for task in stuck}
    held_by_node = any(task.where.startswith(_OF_NODE) for task in stuck)
    return len(users) == 1 and not is_of_system(users.pop()) and not held_by_node


def _judge_zombies_of_users(zombies: int, limit: int) -> Judgement:
    fault = Fault(
        message="programs of users do not collect their ended processes",
        rule=f"{limit} or more zombies, whose parents are no services of the node",
        severity=Severity.INFO,
    )
    return judged("host/tasks", "ZombieProcesses", f"{zombies} zombies", fault)


def _seen_again(before: tuple[int, int] | None, now: Moment) -> tuple[int, int]:
    """Return since when a process waits, and in how many polls in a row it was seen waiting."""
    since, looks = before or (now.boot_ns, 0)
    return since, looks + 1
