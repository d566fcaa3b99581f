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

    def look(self, *waiting: WaitingTask, zombies: int = 0, times: int = 1) -> set[str]:
        """Look so often, and return what is open."""
        self.book.look(self._judge(TasksReading(waiting, zombies)), times)
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
