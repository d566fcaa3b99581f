"""What is kept of a process's newest traceback."""

from collections.abc import Iterable

from everstep.launch.output.last_traceback import LastTraceback
from everstep_common.failures.classification import classify
from everstep_common.failures.tracebacks import last_chain

SECOND = 1_000_000_000
HEAD = "Traceback (most recent call last):"
FRAME = ['  File "train.py", line 7, in <module>', "    step(batch)"]
BECAUSE = "The above exception was the direct cause of the following exception:"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
WATCHDOG = [
    "[rank0]:[E1121 15:01:02.1 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective",
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    "  what():  [PG ID 0 Rank 0] NCCL watchdog thread terminated",
    *(f"frame #{n}: c10d::ProcessGroupNCCL::run() + 0x{n:x} (0x7f in /x.so)" for n in range(45)),
]


def raised(exception: str, *message: str) -> list[str]:
    return [HEAD, *FRAME, exception, *message]


def kept(lines: Iterable[str], *later: str, after_s: float = 10.0) -> LastTraceback:
    """Return what is kept of lines that come at once, and of some that come later."""
    traceback = LastTraceback()
    for line in lines:
        traceback.take(line, SECOND)
    for line in later:
        traceback.take(line, SECOND + int(after_s * SECOND))
    return traceback


def test_a_message_of_sixty_lines_keeps_the_name_of_its_exception() -> None:
    message = [f"field_{n}\n" if n % 2 else "  Field required [type=missing]" for n in range(60)]
    told = raised("pydantic_core._pydantic_core.ValidationError: 30 errors for Config", *message)
    found = kept(told)
    assert found.lines == tuple(line.rstrip() for line in told)
    assert found.began_ns == SECOND
    failure = classify(1, 0, told[-40:], found.lines)
    assert failure.kind == "exception"
    assert failure.exception == told[3]


def test_what_libraries_write_after_it_does_not_hide_it() -> None:
    told = [*raised(OOM), *WATCHDOG]
    found = kept(told, *WATCHDOG)
    assert found.lines == tuple(raised(OOM))
    for code, signal in ((1, 0), (0, 6), (0, 11)):
        assert classify(code, signal, told[-40:], found.lines).kind == "device_memory"
    bug = kept([*raised("ValueError: bad batch"), *WATCHDOG]).lines
    assert classify(0, 6, WATCHDOG, bug).kind == "exception"
    assert classify(0, 6, WATCHDOG).kind == "collective"


def test_of_a_chain_the_whole_is_kept_and_of_two_that_are_none_the_newer() -> None:
    first, second = raised("KeyError: 'loss'"), raised("RuntimeError: no loss")
    chain = [*first, "", BECAUSE, "", *second]
    assert kept(chain).lines == tuple(chain)
    assert kept([*first, "going on", *second]).lines == tuple(second)


def test_one_that_has_no_exception_yet_does_not_replace_a_whole_one() -> None:
    whole = raised("ValueError: bad batch")
    assert kept([*whole, HEAD, *FRAME]).lines == tuple(whole)
    assert kept([HEAD, *FRAME]).lines == (HEAD, *FRAME)


def test_what_the_interpreter_does_not_die_of_does_not_replace_it() -> None:
    whole = raised("ValueError: bad batch")
    for word in (
        "Exception ignored in: <function Loader.__del__ at 0x7f>",
        "Exception in thread Thread-1 (_pin_memory_loop):",
    ):
        assert kept([*whole, word, *raised("EOFError")]).lines == tuple(whole)
    alone = ["Exception in thread Thread-1:", *raised("EOFError")]
    assert last_chain(kept(alone).lines) == ("EOFError",)


def test_what_is_told_without_a_traceback_does_not_hide_the_next_one() -> None:
    ignored = ["Exception ignored in: <_io.TextIOWrapper name='<stdout>'>", "BrokenPipeError: x"]
    whole = raised("ValueError: bad batch")
    assert kept([*whole, *ignored, *raised("KeyError: 'loss'")]).lines == tuple(
        raised("KeyError: 'loss'")
    )
    assert kept([*ignored, *whole]).lines == tuple(whole)


def test_a_process_that_goes_on_has_lived_through_it() -> None:
    told = raised("ValueError: bad batch, skipped")
    assert kept(told, *["step"] * 40).lines == tuple(told)
    assert kept(told, *["step"] * 41).lines == ()
    assert kept(told, *["step"] * 41).began_ns is None
    assert kept(told, *["", "frame #1: x"] * 41).lines == tuple(told)


def test_a_progress_bar_before_it_is_no_part_of_it_and_ranks_prefixes_do_not_matter() -> None:
    bar = " 45%|####      | 450/1000 [00:10<00:12, 44.9it/s]"
    assert kept([bar + HEAD, *FRAME, "ValueError: x"]).lines == (HEAD, *FRAME, "ValueError: x")
    ranked = [f"[rank3]: {line}" for line in raised("ValueError: x")]
    assert last_chain(kept(ranked).lines) == ("ValueError: x",)


def test_a_workers_own_traceback_within_a_message_is_the_message() -> None:
    told = raised(
        "ValueError: Caught ValueError in DataLoader worker process 0.",
        "Original Traceback (most recent call last):",
        *FRAME,
        "ValueError: bad image 17",
    )
    assert kept(told).lines == tuple(told)


def test_a_group_is_kept_with_all_its_parts() -> None:
    told = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "t.py", line 1, in <module>',
        "  | ExceptionGroup: two (2 sub-exceptions)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "t.py", line 3, in f',
        "    | ValueError: 1",
        "    +------------------------------------",
    ]
    assert last_chain(kept(told).lines) == ("ValueError: 1",)
    assert len(kept(told).lines) == len(told)


def test_what_is_kept_is_bounded_and_has_the_exception() -> None:
    deep = [HEAD, *FRAME * 4000, "RecursionError: too deep", *["x" * 200] * 4000]
    found = kept(deep).lines
    assert sum(map(len, found)) <= 64 * 1024
    assert found[0] == HEAD
    assert last_chain(found) == ("RecursionError: too deep",)
    assert sum(map(len, kept([HEAD, *FRAME, "E: " + "x" * 1_000_000]).lines)) < 64 * 1024


def test_lines_that_come_later_are_no_message() -> None:
    told = raised("ValueError: x", "of two lines")
    assert kept(told, "saving logs").lines == tuple(told)
    assert kept(told, "and a third", after_s=0.5).lines == (*told, "and a third")
