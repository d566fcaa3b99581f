"""What of a generation can be left: nothing, or what the kernel itself holds, and that is told."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.launch.processes.generation_group import GenerationGroup, own_group
from everstep_common.launcher_messages import End, Stop
from everstep_common.reports import GenerationStopped
from fakes.waits import wait_until
from integration.test_trainer_launcher import alive
from integration.trainer_job import joined_job

WAIT = "import time; time.sleep(600)"
_FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A group of the kernel's first freezer: SIGKILL does not end what is frozen there."""
    folder = _FREEZER / f"everstep-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("needs the freezer of cgroup version 1, and root")
    yield folder
    (folder / "freezer.state").write_text("THAWED")
    wait_until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def test_a_process_that_cannot_be_killed_is_abandoned_and_named(
    tmp_path: Path, freezer: Path
) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        processes = job.start(1, ranks=2)
        (freezer / "cgroup.procs").write_text(str(processes[1]))
        (freezer / "freezer.state").write_text("FROZEN")
        wait_until(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN")
        job.agent.tell_launcher(Stop(1, 0.0, "a test"))
        stopped = job.agent.expect(GenerationStopped)
        assert isinstance(stopped, GenerationStopped)
        assert stopped.abandoned == (processes[1],)
        assert not alive(processes[0])
        assert alive(processes[1])

        assert job.start(2, ranks=2).keys() == {0, 1}
        (freezer / "freezer.state").write_text("THAWED")
        wait_until(lambda: not Path(f"/proc/{processes[1]}").exists())
        job.stop(2)
        _, _, errors = job.end()
    assert f"held in the kernel by a device or a file system: {processes[1]}" in errors


def test_an_order_that_is_repeated_takes_no_time_from_what_was_killed(
    tmp_path: Path, freezer: Path
) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        processes = job.start(1, ranks=2)
        (freezer / "cgroup.procs").write_text(str(processes[1]))
        (freezer / "freezer.state").write_text("FROZEN")
        wait_until(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN")
        for _ in range(3):
            job.agent.tell_launcher(Stop(1, 0.0, "a test"))
        wait_until(lambda: not alive(processes[0]))
        (freezer / "freezer.state").write_text("THAWED")
        stopped = job.agent.expect(GenerationStopped)
        assert isinstance(stopped, GenerationStopped)
        assert stopped.abandoned == ()
        assert not alive(processes[1])


@pytest.fixture
def group() -> Iterator[GenerationGroup]:
    """A control group of this test."""
    made = GenerationGroup.make(f"everstep-test-{os.getpid()}")
    if made is None:
        pytest.skip("needs a control group (version 2) that is delegated to the tests")
    yield made
    made.kill()
    wait_until(lambda: not made.pids())
    made.remove()


def test_a_group_ends_everything_in_it_at_once(group: GenerationGroup) -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    group.add(pid)
    assert group.pids() == {pid}
    group.kill()
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert group.pids() == set()


def test_ranks_are_in_a_group_that_goes_with_their_generation(
    tmp_path: Path, group: GenerationGroup
) -> None:
    assert group.pids() == set()  # groups can be made here
    own = own_group(Path("/proc/self"))
    assert own is not None
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        processes = job.start(3, ranks=1)
        folder = own / f"everstep-{job.launcher.pid}-gen-3"
        assert str(processes[0]) in (folder / "cgroup.procs").read_text().split()
        job.stop(3)
        assert not folder.exists()


def test_the_group_of_what_the_kernel_holds_is_removed_when_it_lets_go_after_the_launcher_s_end(
    tmp_path: Path, freezer: Path, group: GenerationGroup
) -> None:
    assert group.pids() == set()  # groups can be made here
    own = own_group(Path("/proc/self"))
    assert own is not None
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        processes = job.start(1, ranks=2)
        folder = own / f"everstep-{job.launcher.pid}-gen-1"
        (freezer / "cgroup.procs").write_text(str(processes[1]))
        (freezer / "freezer.state").write_text("FROZEN")
        wait_until(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN")
        job.agent.tell_launcher(Stop(1, 0.0, "a test"))
        job.agent.expect(GenerationStopped)
        job.agent.tell_launcher(End(succeeded=True, reason="a test"))
        _, errors = job.launcher.communicate(timeout=30)  # nobody else writes there any more
        assert job.launcher.returncode == 0
        assert str(processes[1]) in (folder / "cgroup.procs").read_text().split()
        (freezer / "freezer.state").write_text("THAWED")
        wait_until(lambda: not folder.exists())
    assert "was killed" not in errors
