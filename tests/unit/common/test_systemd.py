"""The service manager's protocol, spoken to a real datagram socket that stands in for systemd."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_common.systemd import notify, remove_fd, store_fd, stored_fds, watchdog_interval_s


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def _open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_assignments_arrive_as_lines_of_one_datagram(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": str(manager.getsockname())}
    assert notify("READY=1", "STATUS=streaming", environ=environ)
    assert manager.recv(1000) == b"READY=1\nSTATUS=streaming"


def test_an_abstract_socket_is_reached_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("")  # the kernel picks an abstract name
        name = listener.getsockname().decode()
        assert notify("WATCHDOG=1", environ={"NOTIFY_SOCKET": "@" + name[1:]})
        assert listener.recv(1000) == b"WATCHDOG=1"


def test_without_a_manager_nothing_is_said_and_nothing_breaks(tmp_path: Path) -> None:
    assert not notify("READY=1", environ={})
    assert not notify("READY=1", environ={"NOTIFY_SOCKET": str(tmp_path / "gone")})


def test_a_stored_descriptor_comes_back_with_its_bytes(manager: socket.socket) -> None:
    before = _open_fds()
    memory = os.memfd_create("slot")
    os.write(memory, b"state after step 7")
    assert store_fd("job.0.1", memory)
    os.close(memory)

    message, fds, _, _ = socket.recv_fds(manager, 1000, 4)
    assert message == b"FDSTORE=1\nFDNAME=job.0.1"
    (kept,) = fds
    assert os.pread(kept, 100, 0) == b"state after step 7"
    os.close(kept)
    assert _open_fds() == before


def test_a_descriptor_is_removed_by_its_name(manager: socket.socket) -> None:
    assert remove_fd("job.0.1")
    assert manager.recv(1000) == b"FDSTOREREMOVE=1\nFDNAME=job.0.1"


def test_descriptors_are_handed_over_by_name_and_close_on_exec() -> None:
    # A child process is the one place where descriptor 3 is free to be what a manager passes.
    child = os.fork()
    if child == 0:
        first, second = os.memfd_create("a"), os.memfd_create("b")
        high = [os.dup2(fd, 100 + i) for i, fd in enumerate((first, second))]
        for at, fd in enumerate(high):
            os.dup2(fd, 3 + at, inheritable=True)
        environ = {"LISTEN_PID": "42", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "vault:outbox"}
        given = stored_fds(environ, pid=42)
        right = given == {"vault": 3, "outbox": 4}
        os._exit(0 if right and not any(map(os.get_inheritable, given.values())) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_descriptors_meant_for_another_process_are_left_alone() -> None:
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}
    assert stored_fds(environ, pid=42) == {}
    assert stored_fds({}, pid=42) == {}


def test_the_watchdog_is_fed_twice_as_often_as_it_asks() -> None:
    assert watchdog_interval_s({"WATCHDOG_USEC": "10000000"}) == 5.0
    assert watchdog_interval_s({}) is None
