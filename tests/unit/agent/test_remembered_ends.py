"""Which jobs have ended within a day an agent remembers over its restart, and so many of them."""

import pytest

from everstep_agent.jobs.state.remembered_ends import KEPT_MAX, KEPT_NS, RememberedEnds
from everstep_common.orders import EndJob
from everstep_common.reports import EndedJob

NOW_NS = 1_700_000_000_000_000_000


class Agents:
    """Agents one after the other on one disk, and their clock."""

    def __init__(self) -> None:
        self.text, self.now_ns, self.writes = "[]", NOW_NS, 0
        self.ends = self.restart()

    def restart(self) -> RememberedEnds:
        self.ends = RememberedEnds(self.text, self._keep, lambda: self.now_ns)
        return self.ends

    def _keep(self, text: str) -> None:
        self.text, self.writes = text, self.writes + 1


def _end(
    number: int, *, succeeded: bool = True, reason: str = "well", generation: int = 0
) -> EndJob:
    return EndJob(
        id=f"e{number}",
        node="n0",
        reason=reason,
        job="j",
        job_id=f"j-{number}",
        succeeded=succeeded,
        generation=generation,
    )


def _told(number: int, generation: int = 3, term: int = 7) -> EndedJob:
    return EndedJob(
        job="j",
        job_id=f"j-{number}",
        generation=generation,
        term=term,
        succeeded=True,
        reason="well",
    )


def test_an_end_outlives_the_agent_and_is_forgotten_after_a_day() -> None:
    agents = Agents()
    agents.ends.note(_end(1), 3, 7)
    assert agents.ends.told() == (_told(1),)
    agents.now_ns += KEPT_NS
    assert agents.restart().told() == (_told(1),)
    agents.now_ns += 1
    assert agents.ends.told() == ()


@pytest.mark.parametrize("now_ns", [0, NOW_NS - KEPT_NS - 1])
def test_of_an_end_that_is_yet_to_come_by_a_clock_that_was_lost_nothing_is_said(
    now_ns: int,
) -> None:
    agents = Agents()
    agents.ends.note(_end(1), 3, 7)
    agents.now_ns = now_ns
    assert agents.restart().told() == ()


def test_what_is_ordered_again_is_no_newer_and_the_first_word_of_how_it_ended_counts() -> None:
    agents = Agents()
    agents.ends.note(_end(1), 3, 7)
    agents.now_ns += KEPT_NS
    agents.ends.note(_end(1, succeeded=False, reason="it ended while it was away"), 0, 9)
    assert agents.ends.told() == (_told(1, term=9),)
    writes = agents.writes
    agents.ends.note(_end(1), 0, 9)
    assert agents.writes == writes
    agents.now_ns += 1
    assert agents.ends.told() == ()


@pytest.mark.parametrize(("seen", "told"), [(0, 3), (2, 3), (3, 0), (3, 2)])
def test_the_newest_generation_is_that_of_the_order_or_one_that_the_agent_began_itself(
    seen: int, told: int
) -> None:
    agents = Agents()
    agents.ends.note(_end(1, generation=told), seen, 7)
    assert agents.ends.told() == (_told(1),)


def test_a_job_that_goes_on_has_not_ended() -> None:
    agents = Agents()
    agents.ends.note(_end(1), 3, 7)
    agents.ends.note(_end(2), 3, 7)
    agents.ends.forget("j-1")
    assert agents.restart().told() == (_told(2),)


def test_so_many_are_kept_the_newest() -> None:
    agents = Agents()
    for number in range(KEPT_MAX + 2):
        agents.ends.note(_end(number), 3, 7)
    told = agents.restart().told()
    assert [one.job_id for one in told] == [f"j-{n}" for n in range(2, KEPT_MAX + 2)]


def test_what_cannot_be_read_is_dropped_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    assert RememberedEnds('[{"told": 1}]', lambda _: None, lambda: 0).told() == ()
    assert "which jobs have ended cannot be read" in caplog.text


def test_a_job_without_an_id_is_not_remembered() -> None:
    agents = Agents()
    agents.ends.note(EndJob(id="e", node="", reason="", job="j", succeeded=True), 3, 7)
    assert agents.ends.told() == ()
    assert agents.writes == 0
