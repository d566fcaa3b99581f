"""Copies shared among threads."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from everstep.copy_engine.memory import Copier, Copy, Work, pieces

MIB = 1024 * 1024


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "sizes",
    [[0], [1], [5000, 0, 7], [300 * MIB + 5], [2048 * MIB], [256 * MIB] * 3, [32 * MIB] * 64],
)
def test_pieces_are_the_whole_and_nothing_twice(sizes: list[int], threads: int) -> None:
    copies = []
    for number, size in enumerate(sizes):
        copies.append(Copy(number << 40, (number + 1000) << 40, size))
    cut = pieces(copies, threads)
    for copy in copies:
        at = copy.to_address
        for piece in sorted(cut, key=lambda piece: piece.to_address):
            if piece.to_address >> 40 == copy.to_address >> 40:
                assert piece.to_address == at
                assert piece.from_address - copy.from_address == at - copy.to_address
                at += piece.size_bytes
        assert at == copy.to_address + copy.size_bytes


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("sizes", [[2048 * MIB], [256 * MIB] * 3, [32 * MIB] * 64, [700 * MIB, 9]])
def test_no_thread_has_much_more_to_do_than_another(sizes: list[int], threads: int) -> None:
    loads = [0] * threads
    for piece in pieces([Copy(0, 0, size) for size in sizes], threads):
        loads[loads.index(min(loads))] += piece.size_bytes
    assert max(loads) <= 1.35 * sum(loads) / threads


def test_large_pieces_stay_large_so_that_they_go_past_the_caches() -> None:
    assert {piece.size_bytes for piece in pieces([Copy(0, 0, 2048 * MIB)], 2)} == {256 * MIB}


def test_work_is_done_once_however_many_take_part() -> None:
    done: list[int] = []
    work = Work([partial(done.append, number) for number in range(1000)])
    threads = [threading.Thread(target=work.take_part) for _ in range(3)]
    for thread in threads:
        thread.start()
    work.take_part()
    work.wait()
    assert sorted(done) == list(range(1000))
    for thread in threads:
        thread.join()


def test_what_a_call_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise MemoryError("no memory for a hash")

    work = Work([fail, lambda: None])
    with pytest.raises(MemoryError, match="for a hash"):
        work.take_part()
    with pytest.raises(MemoryError, match="for a hash"):
        work.wait()


class Watched(Work):
    """Work that tells when it is given up."""

    def __init__(self, *calls: Callable[[], None]) -> None:
        super().__init__(calls)
        self.stopped = threading.Event()

    def stop(self) -> None:
        super().stop()
        self.stopped.set()


def test_when_a_copy_is_interrupted_no_thread_writes_any_more() -> None:
    writing, written = threading.Event(), threading.Event()

    def interrupted() -> None:
        assert writing.wait(20)
        raise KeyboardInterrupt

    def slow() -> None:
        writing.set()
        assert work.stopped.wait(20)
        written.set()

    work = Watched(interrupted, slow)
    with pytest.raises(KeyboardInterrupt):
        Copier(2).share(work)
    assert written.is_set()


def test_work_without_calls_is_done() -> None:
    Work([]).wait()
