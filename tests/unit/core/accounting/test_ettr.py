"""What is published of a job's time: the ratios by their definitions, and what a failure costs."""

import pytest

from everstep_controller.api.admin.messages.ledger_messages import ledger as ledger_to_admin
from everstep_controller.core.accounting.categories import (
    PLANNED_WORK,
    Category,
    Group,
    category_of,
)
from everstep_controller.core.accounting.ledger import (
    Ledger,
    effectiveness,
    ettr_time,
    ettr_work,
)
from everstep_controller.core.model.job import Cause, JobRecord, JobSpec
from everstep_controller.core.model.state import State
from everstep_proto.generated import admin_pb2
from unit.core.fleet.job_incidents import add_incidents

S = 1_000_000_000


def _shown(*causes: str) -> admin_pb2.Ledger:
    """Return what people are shown of the job after 100 s, with an incident of each cause."""
    job, state = _job(), State()
    add_incidents(state, job, *map(Cause, causes), over_ns=1)
    return ledger_to_admin(state, job, 100 * S)


def _job() -> JobRecord:
    """Return a job of 100 s: 10 s of start, 9 steps of 8 s, a slow one of 16 s, 2 s in flight."""
    spec = JobSpec(uid=0, token_sha256="", nodes_min=1, nodes_max=1)
    job = JobRecord("train-1", "train", spec, ledger=Ledger(0))
    job.ledger.enter(0, Category.INIT_QUEUE)
    job.ledger.begin_steps(10 * S, warmup=False)
    for step in range(9):
        job.ledger.commit_step(step, (18 + 8 * step) * S, 0)
    job.ledger.commit_step(9, 98 * S, 0)
    return job


def test_the_ratios_are_what_their_definitions_say() -> None:
    found = effectiveness(_job().ledger, 0, 100 * S)
    assert found.wall_ns == 100 * S
    assert found.ettr_work == pytest.approx((9 * 8 + 8) / 100)
    assert found.ettr_time == pytest.approx((9 * 8 + 16) / 100)


def test_only_steps_that_count_are_training() -> None:
    totals = {category: S for category in Category}
    slow = sum(category.group is Group.SLOW for category in Category)
    assert ettr_work(totals, 100 * S) == pytest.approx(0.01)
    assert ettr_time(totals, 100 * S) == pytest.approx(0.01 * (1 + slow))


def test_planned_work_and_first_starts_go_to_categories_of_their_own_kind() -> None:
    for stage in (one for one in Category if one.group is Group.INCIDENT):
        for cause in PLANNED_WORK:
            assert category_of(stage, cause).group is Group.PLANNED
        assert category_of(stage, "process") is stage
    for stage in (Category.SCHEDULE, Category.ENV, Category.INIT, Category.RESTORE):
        assert category_of(stage, None).group is Group.INITIAL


def test_every_category_says_what_it_is() -> None:
    meanings = [category.meaning for category in Category]
    assert all(meanings)
    assert len(set(meanings)) == len(meanings)


def test_before_any_time_has_passed_there_is_no_ratio() -> None:
    assert (ettr_time({}, 0), ettr_work({}, 0)) == (0.0, 0.0)


@pytest.mark.parametrize("planned", ["operator", "user", "growth"])
def test_planned_work_is_no_failure(planned: str) -> None:
    shown = _shown("process", planned, "node", planned)
    assert (shown.failures, len(shown.incidents)) == (2, 4)
    # 0.5 % of 100 s, for each of two failures.
    assert shown.budget_per_failure_s == pytest.approx(0.25)


def test_without_a_failure_there_is_no_rate_to_tell_a_budget_from() -> None:
    assert _shown("operator").budget_per_failure_s == 0
    assert _shown("operator").budget_burnt == 0


def test_every_number_goes_out_with_its_definition() -> None:
    shown = _shown()
    for number in ("ETTR_time", "ETTR_work", "failure"):
        assert any(number in sentence for sentence in shown.definitions)
    assert all(category.meaning for category in shown.categories)
