"""What the kernel shows of a thread that waits for the GIL, and of one that gets no processor."""

from pathlib import Path

import pytest

from everstep.launch.inspection.sources.gil_wait import (
    GilWaits,
    ThreadLook,
    thread_look,
    waits_for_gil,
)

_S = 10**9
_FUTEX = "202"


def told(waits: int, seconds: float, *calls: str) -> bool | None:
    """Return what two looks tell between which a thread waited so often."""
    before, after = calls or (_FUTEX, _FUTEX)
    first, second = ThreadLook(0, 100, before), ThreadLook(int(seconds * _S), 100 + waits, after)
    return waits_for_gil(first, second, _FUTEX)


@pytest.mark.parametrize("waits", [8, 21, 49])
def test_a_thread_that_wakes_every_few_milliseconds_in_a_futex_waits_for_the_gil(
    waits: int,
) -> None:
    assert told(waits, 0.25) is True
    assert told(waits, 0.25, "running", _FUTEX) is True


def test_a_thread_that_gets_no_processor_or_sleeps_does_not() -> None:
    assert told(0, 0.25) is False
    assert told(0, 2.0, "running", "running") is False
    # Twice a second, as the watch does; and beside a main thread that computes in Python.
    assert told(1, 0.5) is False
    assert told(16, 1.0) is False


def test_a_thread_that_waits_for_a_disk_or_for_its_memory_does_not() -> None:
    assert told(40, 0.25, "0", "0") is False
    assert told(40, 0.25, _FUTEX, "-1") is False


def test_looks_that_follow_too_soon_tell_nothing() -> None:
    assert told(40, 0.2) is None


def test_on_a_machine_whose_calls_are_not_known_nothing_is_told() -> None:
    assert waits_for_gil(ThreadLook(0, 1, "202"), ThreadLook(_S, 99, "202"), "") is None


def show(proc: Path, waits: int, syscall: str | None = "running") -> None:
    """Write what the kernel shows of thread 78 of process 77."""
    folder = proc / "77/task/78"
    folder.mkdir(parents=True, exist_ok=True)
    switches = f"voluntary_ctxt_switches:\t{waits}\nnonvoluntary_ctxt_switches:\t5\n"
    (folder / "status").write_text(switches)
    if syscall is not None:
        (folder / "syscall").write_text(f"{syscall} 0x1 0x2\n")


def test_what_is_no_thread_of_the_process_tells_nothing(tmp_path: Path) -> None:
    assert thread_look(77, 78, 5, tmp_path) is None
    show(tmp_path, 7, None)
    assert thread_look(77, 78, 5, tmp_path) is None  # its system call may not be read
    show(tmp_path, 7, "202")
    assert thread_look(77, 78, 5, tmp_path) == ThreadLook(5, 7, "202")
    (tmp_path / "77/task/78/status").write_text("Name:\tpython\n")
    assert thread_look(77, 78, 5, tmp_path) is None


def seconds_of(proc: Path, waits_per_s: int, seconds: int = 5, heard_every: int = 0) -> list[bool]:
    """Return what a launcher sees of a rank, second after second."""
    gil, heard_ns, found = GilWaits(proc), _S, []
    for second in range(1, 1 + seconds):
        show(proc, second * waits_per_s)
        if heard_every and second % heard_every == 0:
            heard_ns = second * _S
        gil.observe(3, (77, 78), heard_ns, second * _S)
        found.append(gil.seen(3, heard_ns, second * _S))
    return found


def test_a_rank_that_is_not_heard_of_and_whose_watch_waits_holds_the_gil(tmp_path: Path) -> None:
    assert seconds_of(tmp_path, 150) == [False, False, False, True, True]


def test_a_rank_without_a_processor_does_not_hold_it(tmp_path: Path) -> None:
    assert True not in seconds_of(tmp_path, 0)


def test_a_rank_that_is_heard_of_does_not_hold_it_whatever_its_watch_waits_for(
    tmp_path: Path,
) -> None:
    assert True not in seconds_of(tmp_path, 150, 20, heard_every=2)


def test_a_rank_of_the_next_generation_begins_anew(tmp_path: Path) -> None:
    gil = GilWaits(tmp_path)
    show(tmp_path, 0)
    gil.observe(3, (77, 78), _S, 3 * _S)
    gil.forget()
    show(tmp_path, 900)
    assert not gil.seen(3, _S, 9 * _S)


def test_a_rank_without_a_watch_is_not_looked_at(tmp_path: Path) -> None:
    gil = GilWaits(tmp_path)
    show(tmp_path, 0)
    for thread, heard_ns in ((0, _S), (78, 0)):
        gil.observe(3, (77, thread), heard_ns, 3 * _S)
        show(tmp_path, 900)
        assert not gil.seen(3, heard_ns, 9 * _S)
