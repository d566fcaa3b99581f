"""Connecting to a Unix socket that others flood."""

import socket
import threading
from pathlib import Path

import pytest

from everstep_common.frames import connect_in_turn


def _listening(path: Path) -> socket.socket:
    """Return a listener whose backlog has room for one connection."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    return listener


def test_who_finds_the_backlog_full_waits_for_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with (
        _listening(path) as listener,
        socket.socket(socket.AF_UNIX) as flood,
        socket.socket(socket.AF_UNIX) as own,
    ):
        flood.connect(str(path))
        waiting = threading.Thread(target=connect_in_turn, args=(own, str(path), 20.0))
        waiting.start()
        for _ in range(2):
            listener.accept()[0].close()
        waiting.join(20)
        assert not waiting.is_alive()
        assert own.recv(1) == b""


def test_a_turn_that_does_not_come_in_time_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with _listening(path), socket.socket(socket.AF_UNIX) as flood:
        flood.connect(str(path))
        with socket.socket(socket.AF_UNIX) as own, pytest.raises(BlockingIOError):
            connect_in_turn(own, str(path), 0.01)
