"""When skipped snapshots are a finding; how old the recoverable step is; how long one waits."""

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.snapshot_skips import WINDOW_NS, SkipWatch
from everstep_agent.jobs.job.progress import Freshness
from everstep_agent.jobs.sessions.slots import patience
from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.judgement import Healthy

_SECOND = 10**9


def _lives(skips_s: set[int], saves_s: set[int], seconds: int) -> list[tuple[int, str]]:
    """Look once a second, as the agent does; return when the finding was raised and cleared."""
    watch, book, told = SkipWatch(), FindingBook(CONDITIONS), []
    for second in range(seconds):
        now = second * _SECOND
        if second in skips_s:
            watch.skipped("demo", now)
        if second in saves_s:
            watch.saved("demo")
        changes = book.enter_judgements(watch.judge(now), Stamp("boot", now, now))
        told += [(second, "raised") for _ in changes.raised]
        told += [(second, f"cleared: {cleared.evidence}") for cleared in changes.cleared]
    return told


def test_a_burst_of_skips_is_no_finding() -> None:
    assert _lives(set(range(10, 30)), set(range(30, 200)), 200) == []


def test_skips_that_last_for_a_minute_are_one_even_between_saved_steps() -> None:
    skips = set(range(10, 200, 20))
    saves = set(range(300)) - skips
    (raised, cleared) = _lives(skips, saves, 300)
    assert raised == (69, "raised")
    assert cleared[0] == 190 + WINDOW_NS // _SECOND
    assert cleared[1].startswith("cleared: 30 snapshots saved")


def test_a_job_that_stands_still_after_its_skips_is_neither_raised_nor_cleared() -> None:
    assert _lives(set(range(10, 100)), set(), 1000) == [(69, "raised")]


def test_a_job_that_never_skipped_is_healthy() -> None:
    watch = SkipWatch()
    watch.saved("demo")
    assert isinstance(watch.judge(0)[0], Healthy)
    watch.forget("demo")
    assert watch.judge(0) == []


def test_a_recoverable_step_ages_until_a_newer_one_is() -> None:
    freshness = Freshness()
    assert freshness.age_s(5 * _SECOND) == 0.0
    freshness.record_recoverable(Recoverable(1, 4), 5 * _SECOND)
    freshness.record_recoverable(Recoverable(1, 4, frozenset({6})), 6 * _SECOND)
    assert freshness.age_s(8 * _SECOND) == 3.0
    freshness.record_recoverable(Recoverable(1, 5), 8 * _SECOND)
    assert freshness.age_s(8 * _SECOND) == 0.0


def test_steps_that_a_restore_would_repeat_are_counted_in_each_generation_anew() -> None:
    freshness = Freshness()
    freshness.record_recoverable(Recoverable(1), 0)
    freshness.record_step(2)
    assert freshness.steps_behind() == 3
    freshness.record_recoverable(Recoverable(1, 1), 0)
    assert freshness.steps_behind() == 1
    freshness.record_recoverable(Recoverable(2, 1), 0)
    assert freshness.steps_behind() == 0


@pytest.mark.parametrize(
    ("asked", "waits"),
    [(None, 5.0), (0.0, 0.0), (2.0, 2.0), (1e9, 60.0), (-1.0, 0.0), (float("nan"), 0.0)],
)
def test_a_wait_is_bounded_whatever_is_asked(asked: float | None, waits: float) -> None:
    assert patience(asked, 5.0, 60.0) == waits
