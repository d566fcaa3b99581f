"""The memory of standbys is looked at often while one imports, and told when it moved."""

import pytest

from everstep.launch.standby.schedules import MemorySchedule, is_news
from everstep_common.reports import Standbys


def test_without_standbys_there_is_nothing_to_look_at() -> None:
    watch = MemorySchedule()
    assert watch.due_in_s(5.0) is None
    assert not watch.claim_due(5.0, making=True)


@pytest.mark.parametrize(("making", "next_s"), [(True, 1.0), (False, 60.0)])
def test_one_that_imports_is_looked_at_each_second_one_that_waits_each_minute(
    making: bool, next_s: float
) -> None:
    watch = MemorySchedule()
    watch.begin()
    assert watch.due_in_s(100.0) == 0.0
    assert watch.claim_due(100.0, making=making)
    assert not watch.claim_due(100.0, making=making)
    assert watch.due_in_s(100.0) == next_s


def test_another_one_that_is_made_is_looked_at_soon() -> None:
    watch = MemorySchedule()
    watch.begin()
    assert watch.claim_due(100.0, making=False)
    watch.begin()
    assert watch.due_in_s(101.0) == 0.0


def test_nothing_is_due_when_they_are_gone() -> None:
    watch = MemorySchedule()
    watch.begin()
    watch.end()
    assert watch.due_in_s(1.0) is None


@pytest.mark.parametrize(
    ("now", "news"),
    [
        (Standbys(2, 0, 1000), False),
        (Standbys(2, 0, 1090), False),
        (Standbys(2, 0, 1200), True),
        (Standbys(2, 0, 800), True),
        (Standbys(1, 1, 1000), True),
        (Standbys(2, 0, 1000, "one died"), True),
    ],
)
def test_a_count_is_news_and_so_is_memory_that_moved_by_a_tenth(now: Standbys, news: bool) -> None:
    assert is_news(Standbys(2, 0, 1000), now) is news
