"""Inspections: each question is answered once, whatever the launcher says or leaves out."""

import asyncio

from everstep_agent.jobs.job.inspection import Inspections, Wanted
from everstep_agent.jobs.job.peers import LauncherLink
from everstep_common.launcher_messages import (
    Inspect,
    Inspected,
    InspectEnd,
    InspectPatiently,
    InspectRecent,
    Join,
)
from everstep_common.reports import RanksInspected
from fakes.jumping_loop import simulate

_RANKS = 2
_REPORT = '{"rank":0}'


class Launcher:
    """A launcher that only keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def send(self, message: object) -> None:
        self.told.append(message)

    def hang_up(self) -> None:
        pass

    def is_hung_up(self) -> bool:
        return False

    async def close(self) -> None:
        pass


class Story:
    """One node with a launcher, and all that was answered."""

    def __init__(self, *, launcher: bool = True) -> None:
        self.launcher = Launcher()
        self.link = LauncherLink(peer=self.launcher if launcher else None)
        self.inspections = Inspections(self.link, lambda: _RANKS)
        self.answers: list[RanksInspected] = []

    def begin(self, number: str) -> None:
        self.inspections.begin(number, self.answers.append)

    def take(self, *reports: str, look: int = 1, more: bool = False, missing: str = "") -> None:
        self.inspections.take_part(Inspected(look, reports, more, missing))


def test_the_parts_of_a_look_become_one_answer() -> None:
    async def told() -> None:
        story = Story()
        story.begin("a")
        story.take(_REPORT, more=True)
        assert not story.answers
        story.take(_REPORT)
        assert story.answers == [RanksInspected("a", (_REPORT, _REPORT))]

    simulate(told())


def test_two_who_ask_share_one_look() -> None:
    async def told() -> None:
        story = Story()
        story.begin("a")
        story.begin("b")
        assert story.launcher.told == [Inspect(1)]
        story.take(_REPORT, _REPORT)
        assert [one.inspection_id for one in story.answers] == ["a", "b"]
        story.begin("c")
        assert story.launcher.told == [Inspect(1), Inspect(2)]

    simulate(told())


def test_a_launcher_that_says_nothing_is_named_when_its_time_is_over() -> None:
    async def told() -> None:
        story = Story()
        story.begin("a")
        story.take(_REPORT, more=True)
        await asyncio.sleep(60)
        (answer,) = story.answers
        assert answer.reports == (_REPORT,)
        assert "did not answer within 4 s" in answer.missing
        story.take(_REPORT)  # what comes after that is nobody's
        assert len(story.answers) == 1

    simulate(told())


def test_without_a_launcher_the_answer_comes_at_once() -> None:
    story = Story(launcher=False)
    story.begin("a")
    assert "its launcher is away" in story.answers[0].missing


def test_what_nobody_asked_for_is_left_out() -> None:
    async def told() -> None:
        story = Story()
        story.take(_REPORT)
        story.begin("a")
        story.take(_REPORT, look=7)
        story.take(_REPORT, _REPORT, missing="")
        assert story.answers == [RanksInspected("a", (_REPORT, _REPORT))]

    simulate(told())


def test_ranks_that_it_does_not_tell_of_are_counted() -> None:
    async def told() -> None:
        story = Story()
        story.begin("a")
        story.take(_REPORT)
        assert story.answers[0].missing == "it told of 1 of 2 ranks"

    simulate(told())


def test_no_launcher_makes_an_answer_larger_than_its_ranks() -> None:
    async def told() -> None:
        story = Story()
        story.begin("a")
        for _ in range(100):
            story.take(*[_REPORT] * 8, more=True)
        story.take()
        assert len(story.answers[0].reports) == _RANKS

    simulate(told())


def _join(protocol: int) -> Join:
    return Join(
        protocol=protocol,
        version="0",
        job="demo",
        token="t",
        nodes_min=1,
        nodes_max=1,
        processes_per_node=_RANKS,
        reform=True,
        restarts_max=1,
        free_port=1,
        running_generation=0,
    )


def test_what_was_seen_of_an_end_is_asked_of_launchers_that_look_and_of_no_older_ones() -> None:
    async def told() -> None:
        for protocol, asked in ((10, [InspectEnd(1, 4)]), (9, [])):
            story = Story()
            story.link.request = _join(protocol)
            story.inspections.begin("a", story.answers.append, Wanted(4))
            assert story.launcher.told == asked
            story.take(_REPORT, _REPORT)
            (answer,) = story.answers
            assert bool(answer.reports) is bool(asked)
            assert ("older version" in answer.missing) is not bool(asked)

    simulate(told())


def test_recent_collectives_are_asked_of_launchers_that_tell_them_and_of_no_older_ones() -> None:
    async def told() -> None:
        for protocol, asked in ((12, [InspectRecent(1)]), (11, [])):
            story = Story()
            story.link.request = _join(protocol)
            story.inspections.begin("a", story.answers.append, Wanted(recent=True))
            assert story.launcher.told == asked
            story.take(_REPORT, _REPORT)
            (answer,) = story.answers
            assert bool(answer.reports) is bool(asked)
            assert ("older version" in answer.missing) is not bool(asked)

    simulate(told())


def test_who_looks_at_ranks_that_hang_waits_for_a_look_at_collectives_to_end() -> None:
    async def told() -> None:
        story = Story()
        story.link.request = _join(12)
        story.inspections.begin("a", story.answers.append, Wanted(recent=True))
        story.begin("b")
        assert story.launcher.told == [InspectRecent(1)]
        story.take(_REPORT, _REPORT)
        assert story.launcher.told == [InspectRecent(1), Inspect(2)]
        story.inspections.begin("c", story.answers.append, Wanted(recent=True))
        assert "something else" in story.answers[1].missing
        story.take(_REPORT, _REPORT, look=2)
        assert [one.inspection_id for one in story.answers] == ["a", "c", "b"]
        assert story.answers[2].reports

    simulate(told())


def test_who_asks_for_something_else_meanwhile_is_told_so() -> None:
    async def told() -> None:
        story = Story()
        story.link.request = _join(10)
        story.begin("a")
        story.inspections.begin("b", story.answers.append, Wanted(4))
        (answer,) = story.answers
        assert (answer.inspection_id, answer.reports) == ("b", ())
        story.take(_REPORT, _REPORT)
        assert story.answers[1].inspection_id == "a"

    simulate(told())


def test_a_person_waits_longer_on_a_loaded_machine_and_automation_no_longer_than_it_did() -> None:
    async def told() -> None:
        for protocol, asked, within_s in ((16, InspectPatiently(1), 12), (15, Inspect(1), 4)):
            story = Story()
            story.link.request = _join(protocol)
            story.inspections.begin("a", story.answers.append, Wanted(patient=True))
            assert story.launcher.told == [asked]
            await asyncio.sleep(within_s - 0.1)
            assert not story.answers
            await asyncio.sleep(0.2)
            assert story.answers
        story = Story()
        story.link.request = _join(16)
        story.inspections.begin("a", story.answers.append, Wanted(patient=True))
        await asyncio.sleep(5)
        story.begin("b")
        assert story.launcher.told == [InspectPatiently(1), Inspect(1)]
        await asyncio.sleep(3.9)
        assert not story.answers
        await asyncio.sleep(0.2)
        assert len(story.answers) == 2

    simulate(told())
