"""Which rank failed first."""

from dataclasses import replace

import pytest

from everstep.launch.processes.rank_failure import (
    RankEnd,
    RankFailure,
    failed_by_itself,
    first_failure,
    is_giving_up,
    last_words,
)
from everstep_common.endings import by_user_on
from everstep_common.launcher_messages import End

SECOND = 1_000_000_000
OWN = ("Traceback (most recent call last):", '  File "t.py", line 1', "ValueError: bad batch")
LOST = (
    "Traceback (most recent call last):",
    '  File "t.py", line 9',
    "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:1",
)


def ended(
    rank: int, at_s: int, lines: tuple[str, ...], code: int = 1, began_s: int | None = None
) -> RankEnd:
    began = None if began_s is None else began_s * SECOND
    return RankEnd(
        rank=rank,
        code=code,
        core_dumped=False,
        at_boot_ns=at_s * SECOND,
        last_lines=lines,
        traceback_boot_ns=began,
    )


def first(*ends: RankEnd) -> int:
    found = first_failure([RankFailure.of(1, end) for end in ends])
    assert found is not None
    return found.end.rank


def test_the_rank_that_died_first_failed_first() -> None:
    assert first(ended(0, 5, OWN), ended(1, 4, OWN)) == 1


def test_a_rank_that_lost_its_peer_is_not_the_first_even_if_it_died_before_it() -> None:
    assert first(ended(0, 4, LOST, began_s=4), ended(1, 9, OWN, began_s=3)) == 1
    assert first(ended(0, 4, LOST, began_s=4), ended(1, 9, (), code=-9)) == 1


def test_a_traceback_counts_from_when_it_was_written() -> None:
    assert first(ended(0, 5, OWN, began_s=5), ended(1, 9, OWN, began_s=3)) == 1


def test_among_those_that_lost_a_peer_the_first_is_taken() -> None:
    assert first(ended(0, 5, LOST), ended(1, 4, LOST)) == 1


def test_without_a_failure_there_is_no_first() -> None:
    assert first_failure([]) is None


def test_a_rank_that_runs_is_giving_up_until_it_has_lived_through_its_traceback() -> None:
    waited = (*OWN[:2], "RuntimeError: Timed out waiting 5000ms for recv operation to complete")
    assert is_giving_up(waited, 4 * SECOND, 5 * SECOND)
    assert not is_giving_up(waited, 4 * SECOND, 64 * SECOND)
    assert not is_giving_up(LOST, 4 * SECOND, 5 * SECOND)
    assert not is_giving_up(OWN, 4 * SECOND, 5 * SECOND)
    assert not is_giving_up((), None, 5 * SECOND)


def test_a_rank_that_was_told_to_end_counts_only_if_it_was_failing_before() -> None:
    told = 5 * SECOND
    assert failed_by_itself(ended(0, 9, OWN, began_s=4), told)
    assert not failed_by_itself(ended(0, 9, OWN, began_s=6), told)
    assert not failed_by_itself(ended(0, 9, OWN, code=-15, began_s=4), told)
    assert not failed_by_itself(ended(0, 9, ()), told)


@pytest.mark.parametrize(
    ("code", "core", "told"),
    [
        (3, False, "rank 2 of generation 1 exited with code 3"),
        (-11, True, "rank 2 of generation 1 was killed by SIGSEGV (core dumped)"),
        (-40, False, "rank 2 of generation 1 was killed by signal 40"),
    ],
)
def test_an_end_in_words(code: int, core: bool, told: str) -> None:
    end = RankEnd(rank=2, code=code, core_dumped=core, at_boot_ns=0, last_lines=("a", " "))
    failure = RankFailure.of(1, end)
    assert failure.sentence() == told
    assert failure.last_line() == ("a" if code > 0 else "")


BAR = " 28%|██▊       | 84/300 [00:30<01:19,  2.73it/s, loss=1.204]"


@pytest.mark.parametrize("code", [-9, -11, -15, 1])
def test_a_progress_bar_is_no_reason_of_an_end(code: int) -> None:
    failure = RankFailure.of(1, ended(0, 5, ("", BAR), code=code))
    assert failure.report().last_line == ""
    assert failure.said() == ("",)
    assert not any("84/300" in line for line in last_words("j", End(False, "it died"), failure))


def _failed(*lines: str) -> RankFailure:
    return RankFailure.of(1, ended(1, 9, lines))


def test_the_first_error_of_a_job_that_failed_is_said_last() -> None:
    told = last_words("j", End(False, "a bug"), _failed(*OWN))
    assert told[0] == "job j failed: a bug"
    assert told[-1].strip() == OWN[-1]


def test_who_ended_a_job_is_said_last_and_no_traceback_of_a_peer_beside_it() -> None:
    for lines in (OWN, LOST):
        told = last_words("j", End(False, by_user_on("node-1")), _failed(*lines))
        assert told == [
            "rank 1 of generation 1 exited with code 1; the job did not end by that",
            "job j was ended by its user on node-1",
        ]
    assert last_words("j", End(False, by_user_on("node-1")), None) == [
        "job j was ended by its user on node-1"
    ]


def test_of_a_job_that_succeeded_no_failure_is_told() -> None:
    assert last_words("j", End(True, "all well"), _failed(*OWN)) == ["job j succeeded: all well"]


MESSAGE = ("ValidationError: 30 errors", *(f"field {n}: missing" for n in range(200)))
NOISE = ("[rank1]:[E1121 15:01:02.1 ProcessGroupNCCL.cpp:629] Watchdog caught", "frame #0: c10d")


def test_the_exception_is_said_last_whatever_followed_it_and_however_long_it_is() -> None:
    whole = (*OWN[:2], *MESSAGE)
    end = replace(ended(1, 9, NOISE), traceback=whole, traceback_boot_ns=8 * SECOND)
    failure = RankFailure.of(1, end)
    told = last_words("j", End(False, "a bug"), failure)
    assert failure.kind == "exception"
    assert failure.last_line() == MESSAGE[0]
    assert told[-1].strip() == MESSAGE[0]
    assert f"  {MESSAGE[0]}" in told[:10]
    assert f"  {MESSAGE[-1]}" == told[-2]
    assert not any(line.strip() in NOISE for line in told)
    assert len(told) < 110


def test_a_signal_long_after_a_traceback_is_no_consequence_of_it() -> None:
    kept = replace(ended(1, 20, NOISE, code=-6), traceback=OWN, traceback_boot_ns=15 * SECOND)
    assert RankFailure.of(1, kept).exception == OWN[-1]
    later = replace(kept, at_boot_ns=600 * SECOND)
    assert RankFailure.of(1, later).exception == ""
    assert RankFailure.of(1, later).said() == NOISE
    assert RankFailure.of(1, replace(later, code=1)).exception == OWN[-1]
