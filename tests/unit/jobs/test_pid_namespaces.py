"""What a launcher in a container means by the numbers of its processes."""

from pathlib import Path

import pytest

from everstep_agent.ipc.pid_namespaces import named_processes, number_for
from everstep_agent.ipc.processes import ProcessIdentity

_USER, _OTHER = 1000, 1001
_LAUNCHER = ProcessIdentity(500, 500)


def _process(proc: Path, pid: int, parent: int, numbers: str, uid: int = _USER) -> None:
    folder = proc / str(pid)
    (folder / "task" / str(pid)).mkdir(parents=True)
    (folder / "status").write_text(
        f"Name:\tx\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{numbers}\n"
    )
    (folder / "stat").write_text(f"{pid} (x) S {parent} {' '.join(['0'] * 17)} {pid} 0\n")
    (folder / "task" / str(pid) / "children").write_text("")
    if parent in (500, 600):
        with (proc / str(parent) / "task" / str(parent) / "children").open("a") as children:
            children.write(f"{pid} ")


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A launcher that is process 1 of its namespace, with ranks 7 and 8 and somebody else's 9."""
    _process(tmp_path, 500, 400, "500 1")
    _process(tmp_path, 600, 500, "600 7")
    _process(tmp_path, 601, 600, "601 8 1")
    _process(tmp_path, 602, 500, "602 9", _OTHER)
    # What has these numbers on the host is another's, or the launcher's own in another role.
    _process(tmp_path, 7, 1, "7")
    _process(tmp_path, 8, 500, "8 30")
    return tmp_path


def test_numbers_of_a_container_are_found_below_its_launcher(pod: Path) -> None:
    found = named_processes([7, 8, 9, 600, 77], _LAUNCHER, _USER, pod)
    assert found == [ProcessIdentity(600, 600), ProcessIdentity(601, 601)]


def test_a_launcher_on_the_host_means_what_it_says(tmp_path: Path) -> None:
    _process(tmp_path, 500, 400, "500")
    _process(tmp_path, 600, 500, "600")
    _process(tmp_path, 7, 1, "7")
    found = named_processes([600, 7, 99], _LAUNCHER, _USER, tmp_path)
    assert found == [ProcessIdentity(600, 600)]


def test_a_kernel_that_tells_no_numbers_has_one_namespace(tmp_path: Path) -> None:
    _process(tmp_path, 500, 400, "500")
    _process(tmp_path, 600, 500, "600")
    for pid in (500, 600):
        status = tmp_path / str(pid) / "status"
        status.write_text(status.read_text().partition("NSpid")[0])
    found = named_processes([600], _LAUNCHER, _USER, tmp_path)
    assert found == [ProcessIdentity(600, 600)]


def test_a_launcher_that_is_gone_names_nothing(tmp_path: Path) -> None:
    _process(tmp_path, 600, 1, "600")
    assert named_processes([600], _LAUNCHER, _USER, tmp_path) == []


@pytest.mark.parametrize(("pid", "number"), [(600, 7), (601, 8), (7, 7), (12345, 12345)])
def test_a_process_is_known_to_its_launcher_by_another_number(
    pod: Path, pid: int, number: int
) -> None:
    assert number_for(_LAUNCHER, pid, pod) == number


def test_without_a_launcher_numbers_are_our_own(pod: Path) -> None:
    assert number_for(None, 600, pod) == 600
