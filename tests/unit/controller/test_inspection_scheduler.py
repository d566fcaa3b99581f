"""Turns of looks at jobs: who waits for whom, who is refused, and that users take turns."""

import asyncio

import pytest

from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.model.job import JobRecord, JobSpec
from everstep_controller.inspection.scheduler import (
    BOUNDS,
    BusyError,
    InspectionScheduler,
    Purpose,
)
from fakes.jumping_loop import simulate


def _job(name: str, uid: int = 1) -> JobRecord:
    spec = JobSpec(uid=uid, token_sha256="", nodes_min=1, nodes_max=1)
    return JobRecord(f"{name}-1", name, spec, ledger=Ledger(0))


class _Looks:
    """Looks that take so long each, and when those began that were not refused."""

    def __init__(self) -> None:
        self.scheduler = InspectionScheduler()
        self.began: list[tuple[float, str]] = []
        self.refused: list[str] = []

    async def look(self, purpose: Purpose, job: JobRecord, takes_s: float = 1.0) -> None:
        try:
            async with self.scheduler.turn(purpose, job):
                self.began.append((asyncio.get_running_loop().time(), job.name))
                await asyncio.sleep(takes_s)
        except BusyError as error:
            self.refused.append(str(error))


@pytest.mark.parametrize("purpose", [Purpose.HANG, Purpose.END, Purpose.COLLECTIVES])
def test_so_many_jobs_are_looked_at_at_once_and_no_user_waits_for_all_jobs_of_another(
    purpose: Purpose,
) -> None:
    async def scenario() -> _Looks:
        looks = _Looks()
        many = [_job(f"many-{number}", uid=1) for number in range(3 * BOUNDS[purpose].jobs)]
        async with asyncio.TaskGroup() as tasks:
            for job in [*many, _job("one", uid=2)]:
                tasks.create_task(looks.look(purpose, job))
        return looks

    looks = simulate(scenario())
    at_once = BOUNDS[purpose].jobs
    assert [at for at, _ in looks.began] == [at // at_once for at in range(3 * at_once + 1)]
    assert (1, "one") in looks.began
    assert looks.refused == []


def test_looks_for_one_purpose_do_not_wait_for_those_for_another() -> None:
    async def scenario() -> _Looks:
        looks = _Looks()
        async with asyncio.TaskGroup() as tasks:
            for number, purpose in enumerate([*Purpose] * 4):
                tasks.create_task(looks.look(purpose, _job(f"job-{number}")))
        return looks

    looks = simulate(scenario())
    assert {at for at, _ in looks.began} == {0}


def test_a_person_does_not_wait_but_is_refused() -> None:
    async def scenario() -> _Looks:
        looks = _Looks()
        async with asyncio.TaskGroup() as tasks:
            for number in range(8):
                tasks.create_task(looks.look(Purpose.PERSON, _job(f"job-{number}")))
            for name in ("job-0", "more"):
                tasks.create_task(looks.look(Purpose.PERSON, _job(name)))
            tasks.create_task(looks.look(Purpose.HANG, _job("job-1")))
        await looks.look(Purpose.PERSON, _job("job-0"))
        return looks

    looks = simulate(scenario())
    assert looks.refused == [
        "somebody looks at job-0 now; try again in a few seconds",
        "8 jobs are looked at now; try again soon",
    ]
    assert looks.began[-1] == (1, "job-0")


def test_the_end_of_a_job_is_asked_about_when_a_person_s_look_at_it_is_over() -> None:
    async def scenario() -> _Looks:
        looks = _Looks()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(looks.look(Purpose.PERSON, _job("short"), takes_s=3))
            tasks.create_task(looks.look(Purpose.PERSON, _job("long"), takes_s=60))
            for name in ("short", "long"):
                tasks.create_task(looks.look(Purpose.END, _job(name)))
        return looks

    looks = simulate(scenario())
    assert looks.began == [(0, "short"), (0, "long"), (3, "short")]
    assert looks.refused == ["others have looked at long for 10 s"]
