"""Live hangs: real gloo jobs in which one rank holds the others back, looked at and judged.

Cases that a job survives follow one another in it, each in a phase of its own: what is usual is
learned for each phase, and a stand that ended well would be usual from then on.
"""

import time
from collections.abc import Iterator, Sequence

from hangs.cases import Case, Outcome, plan
from hangs.live_job import Forge, LiveJob

from everstep_common.hangs.judging.judge import judge

# From the end of a look to the next, as the watch of hangs at the controller does.
_BETWEEN_S = 1.0
_STARTS_S = 90.0
# So many that a history tells what each rank does in a step.
_WARM_STEPS = 30
# What a report says where the machine is too busy for a look.
_LATE = "too long"


def run_cases(
    cases: Sequence[Case], looks_max: int = 1, part: tuple[int, int] = (0, 1), *, quick: bool
) -> Iterator[Outcome]:
    """Yield what becomes of each, of one part of the jobs: its number, and how many there are.

    A second look that the machine is too busy for is taken again, up to ``looks_max`` times.
    ``quick``: ranks that stand still for a moment are looked at; as shipped, when the watch of
    their launcher and the judge of its agent say so, by what they have learned of the job.
    """
    jobs = plan(cases)[part[0] :: part[1]]
    with Forge() as forge:
        for together in jobs:
            waiting = list(together)
            while waiting:
                yield from _run_job(forge, waiting, looks_max, quick=quick)


def _run_job(
    forge: Forge, waiting: list[Case], looks_max: int, *, quick: bool
) -> Iterator[Outcome]:
    """Run cases in one job for as long as it survives them, and take them off the list."""
    job = LiveJob(forge, waiting[0], exits=waiting[-1].exits)
    try:
        assert job.train_to(_WARM_STEPS, _STARTS_S), f"the job of {waiting[0]} does not train"
        goes_on = True
        while waiting and goes_on:
            assert quick or job.learns(), f"the watch of {waiting[0]} learns nothing"
            case = waiting.pop(0)
            outcome = _run_case(job, case, looks_max, quick=quick)
            if not case.ends_job:
                goes_on = outcome.went_on = job.release(case)
                job.begin_part()
            yield outcome
    finally:
        job.end()


def _run_case(job: LiveJob, case: Case, looks_max: int, *, quick: bool) -> Outcome:
    outcome = Outcome(case)
    began_ns = job.inject(case)
    if not began_ns or not (job.stands_still() if quick else job.detected(began_ns)):
        return outcome
    outcome.detected_s = _since_s(began_ns)
    outcome.first = judge(job.look(), case.ranks)
    outcome.first_s = _since_s(began_ns)
    time.sleep(_BETWEEN_S)
    for _ in range(looks_max):
        outcome.reports = job.look()
        if not any(_LATE in blind.reason for one in outcome.reports for blind in one.blind):
            break
    started = time.process_time()
    outcome.verdict = judge(outcome.reports, case.ranks)
    outcome.judged_ms = 1000 * (time.process_time() - started)
    outcome.verdict_s = _since_s(began_ns)
    return outcome


def _since_s(began_ns: int) -> float:
    return (time.monotonic_ns() - began_ns) / 1e9
