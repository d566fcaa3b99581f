"""Who gets a signal that is meant for the ranks."""

import signal
from pathlib import Path

from everstep.launch.signals import handlers, pass_on

USR1 = signal.SIGUSR1
CAUGHT = 1 << (USR1 - 1)


def process(proc: Path, pid: int, *, caught: int = 0, children: str = "") -> None:
    folder = proc / str(pid)
    (folder / "task" / str(pid)).mkdir(parents=True)
    (folder / "status").write_text(f"Name:\tpython\nSigBlk:\t0000\nSigCgt:\t{caught:016x}\n")
    (folder / "task" / str(pid) / "children").write_text(children)


def test_a_rank_with_a_handler_gets_it_and_its_data_loaders_do_not(tmp_path: Path) -> None:
    process(tmp_path, 10, caught=CAUGHT, children="11 12 ")
    process(tmp_path, 11, caught=CAUGHT)
    process(tmp_path, 12)
    assert list(handlers(USR1, 10, tmp_path)) == [10]
    assert list(handlers(signal.SIGUSR2, 10, tmp_path)) == []


def test_behind_a_shell_the_script_that_it_started_gets_it(tmp_path: Path) -> None:
    process(tmp_path, 10, caught=1 << (signal.SIGCHLD - 1), children="11 12 13")
    process(tmp_path, 11, caught=CAUGHT | 1)
    process(tmp_path, 12)  # and 13 has ended
    assert list(handlers(USR1, 10, tmp_path)) == [11]


def test_what_was_done_is_said(tmp_path: Path) -> None:
    process(tmp_path, 10)
    assert pass_on(USR1, {}, tmp_path) == "SIGUSR1 does nothing: no rank runs here now"
    assert pass_on(USR1, {0: 10, 1: 11}, tmp_path) == (
        "SIGUSR1 does nothing: no rank here has a handler for it, and would die of it"
    )
