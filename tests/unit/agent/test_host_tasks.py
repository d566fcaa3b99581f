"""Processes: stuck in the kernel, or ended and not collected."""

from collections.abc import Callable, Sequence

import pytest

from everstep_agent.detectors.host.limits import HostLimits
from everstep_agent.detectors.host.tasks import TaskDetector, TasksReading, WaitingTask
from everstep_common.clock import Stamp
from everstep_common.judging.findings import Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement
from unit.agent.open_book import OpenBook

_SMI = WaitingTask(4242, 100, "nvidia-smi")
_DATALOADER = WaitingTask(77, 100, "python3", where="nfs_wait_bit_killable")
_QUEUE = WaitingTask(900, 5, "nvidia-modeset/kthread_q", kernel=True)


class Node:
    """A node whose processes are looked at once a minute."""

    def __init__(self) -> None:
        self.book = OpenBook(interval_s=60)
        self._detector = TaskDetector(HostLimits())

    def look(
        self, *waiting: WaitingTask, zombies: int = 0, of_users: int = 0, times: int = 1
    ) -> set[str]:
        """Look so often, and return what is open."""
        self.book.look(self._judge(TasksReading(waiting, zombies, of_users)), times)
        return self.book.open

    def _judge(self, reading: TasksReading) -> Callable[[Stamp], Sequence[Judgement]]:
        return lambda now: self._detector.judge(reading, now)


@pytest.mark.parametrize("task", [_SMI, _QUEUE])
def test_a_process_of_the_driver_that_waits_in_five_looks_is_a_hanging_driver(
    task: WaitingTask,
) -> None:
    node = Node()
    assert node.look(task, times=4) == set()
    assert "DriverTasksStuck" in node.look(task)
    finding = node.book.finding("DriverTasksStuck")
    assert finding.severity is Severity.FATAL
    assert finding.suggested_action is SuggestedAction.REBOOT_NODE
    assert node.look() == set()


def test_looks_out_of_turn_do_not_make_a_driver_hang_sooner() -> None:
    node = Node()
    node.book.interval_s = 1
    assert node.look(_SMI, times=200) == set()
    assert "DriverTasksStuck" in node.look(_SMI, times=60)


def test_different_processes_of_the_driver_that_wait_shortly_are_no_fault() -> None:
    node = Node()
    for pid in range(20):
        assert node.look(WaitingTask(pid, 1, "nvidia-smi")) == set()
    # The same number, but another process.
    for started in range(20):
        assert node.look(WaitingTask(1, started, "nvidia-smi")) == set()


def test_a_driver_process_that_did_not_wait_in_between_begins_anew() -> None:
    node = Node()
    for _ in range(5):
        assert node.look(_SMI, times=4) == set()
        assert node.look() == set()


def test_a_process_that_waits_for_five_minutes_is_told_with_its_name_and_place() -> None:
    node = Node()
    assert node.look(_DATALOADER, times=5) == set()
    assert node.look(_DATALOADER) == {"TasksStuck"}
    evidence = node.book.finding("TasksStuck").evidence
    assert evidence == "1 waiting: python3 (pid 77, 5 min, in nfs_wait_bit_killable)"
    assert node.look(_SMI) == set()


def test_the_kernels_own_threads_may_rest_as_long_as_they_like() -> None:
    node = Node()
    assert node.look(WaitingTask(2, 1, "kworker/u64:3", kernel=True), times=100) == set()


def test_many_stuck_processes_are_one_finding_that_names_the_oldest() -> None:
    node = Node()
    tasks = [WaitingTask(pid, 1, f"rank{pid}") for pid in range(100, 140)]
    node.look(*tasks[:1])
    assert node.look(*tasks, times=6) == {"TasksStuck"}
    told = node.book.finding("TasksStuck").evidence
    assert told.startswith("1 waiting: rank100")
    node = Node()
    node.look(*tasks, times=6)
    assert node.book.finding("TasksStuck").evidence.endswith("and 35 more")


def test_twenty_zombies_in_five_looks_are_found_and_a_thousand_call_for_a_reboot() -> None:
    node = Node()
    assert node.look(zombies=20, times=4) == set()
    assert node.look(zombies=20) == {"ZombieProcesses"}
    assert node.book.finding("ZombieProcesses").suggested_action is SuggestedAction.WATCH
    node.look(zombies=1000)
    assert node.book.finding("ZombieProcesses").suggested_action is SuggestedAction.REBOOT_NODE
    assert node.look(zombies=19) == {"ZombieProcesses"}
    assert node.look(zombies=19) == set()


def _of(uid: int, where: str = "", name: str = "nvidia-smi", pid: int = 7) -> WaitingTask:
    return WaitingTask(pid, 1, name, uid=uid, where=where)


def test_a_users_process_that_is_called_like_the_drivers_is_no_hanging_driver() -> None:
    """Anybody can wait in state D behind a vfork, under any name."""
    node = Node()
    assert "DriverTasksStuck" not in node.look(_of(1000), times=20)
    assert "DriverTasksStuck" in node.look(_of(113), times=20), "nvidia-persistenced has such a uid"


@pytest.mark.parametrize("where", ["", "kernel_clone", "request_wait_answer", "lookup_slow"])
def test_what_one_user_may_have_willed_makes_no_node_suspect(where: str) -> None:
    node = Node()
    assert node.look(_of(1000, where), _of(1000, where, pid=8), times=7) == {"TasksStuck"}
    finding = node.book.finding("TasksStuck")
    assert finding.severity is Severity.INFO
    assert "user 1000" in finding.message


@pytest.mark.parametrize(
    "tasks",
    [
        [_of(0, name="sshd")],
        [_of(1000, "rpc_wait_bit_killable")],
        [_of(1000, "nvidia_ioctl")],
        [_of(1000), _of(1001, pid=8)],
        [_of(1000), _of(0, name="sshd", pid=8)],
    ],
)
def test_what_no_single_user_has_willed_is_a_fault_of_the_node(tasks: list[WaitingTask]) -> None:
    node = Node()
    node.look(*tasks, times=7)
    assert node.book.finding("TasksStuck").severity is Severity.DEGRADED


def test_zombies_of_a_users_program_make_no_node_suspect() -> None:
    node = Node()
    assert node.look(zombies=3, of_users=5000, times=5) == {"ZombieProcesses"}
    finding = node.book.finding("ZombieProcesses")
    assert finding.severity is Severity.INFO
    assert finding.suggested_action is SuggestedAction.WATCH
    node.look(zombies=20, of_users=5000)
    assert node.book.finding("ZombieProcesses").severity is Severity.DEGRADED
