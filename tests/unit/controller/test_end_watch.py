"""Of which jobs ranks ended, by events that come alone or together."""

import asyncio

from everstep_common.reports import FindingCleared, RankExited
from everstep_controller.core.events import EqualExits, EventBatch, RanksExited, Reported
from everstep_controller.core.model.node import Origin
from everstep_controller.hangs.end_watch import Looks, give_up_oldest, jobs_of_exits
from fakes.jumping_loop import simulate

_EXITED = RankExited(generation=1, rank=0, exit_code=1, signal=0, last_line="")


def _origin(sequence: int) -> Origin:
    return Origin("node-1", "outbox", sequence)


def _one(job: str, sequence: int) -> Reported[RankExited]:
    return Reported(_origin(sequence), 0, _EXITED, job)


def _several(job: str, sequence: int) -> RanksExited:
    exits = (EqualExits(_EXITED, (0, 1), (1, 1)),)
    origin = _origin(sequence)
    return RanksExited(origin=origin, first_sequence=sequence - 1, job=job, exits=exits)


def test_an_exit_that_stands_alone_is_of_its_job() -> None:
    assert jobs_of_exits(_one("train", 1)) == ("train",)
    assert jobs_of_exits(_several("train", 2)) == ("train",)


def test_exits_that_come_together_are_of_their_jobs_each_once() -> None:
    cleared = Reported(_origin(1), 0, FindingCleared("gpu-0", "Odd", "well"))
    told = (cleared, _one("train", 2), _several("other", 4), _one("train", 5))
    assert jobs_of_exits(EventBatch(told)) == ("train", "other")


def test_what_is_no_exit_is_of_no_job() -> None:
    assert jobs_of_exits(Reported(_origin(1), 0, FindingCleared("gpu-0", "Odd", "well"))) == ()


def test_of_too_many_ends_the_oldest_of_the_user_with_most_is_given_up() -> None:
    async def scenario() -> list[tuple[int, str]]:
        users = (1, 2, 2, 3)
        looks: Looks = [
            (user, asyncio.create_task(asyncio.sleep(60), name=f"look {number}"))
            for number, user in enumerate(users)
        ]
        given_up = looks[1][1]
        give_up_oldest(looks)
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        return [(user, look.get_name()) for user, look in looks]

    assert simulate(scenario()) == [(1, "look 0"), (2, "look 2"), (3, "look 3")]
