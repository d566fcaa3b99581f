"""Incident costs: what the program did itself, and how long each failure took, by stage."""

import pytest

from everstep_common.failures.classification import KINDS, Side
from everstep_controller.core.accounting.categories import PLANNED_WORK, Category
from everstep_controller.core.accounting.incident_costs import (
    CountedIncident,
    recoveries,
    time_of_program,
)
from everstep_controller.core.accounting.ledger import Ledger

S = 1_000_000_000


def _of_two_incidents() -> Ledger:
    """Return the ledger of a job with a fault of three seconds, and one of five."""
    ledger = Ledger(0)
    ledger.enter(0, Category.INIT_QUEUE)
    for incident, at_s, drained_s in (("j-1", 0, 2), ("j-2", 10, 4)):
        ledger.begin_steps(at_s * S, warmup=False)
        ledger.record_fault(at_s * S, (at_s + 1) * S, incident, cause="process")
        ledger.enter((at_s + 1) * S, Category.DRAIN)
        ledger.enter((at_s + 1 + drained_s) * S, Category.RESTORE)
    return ledger


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_is_at_fault_where_its_own_code_ended_the_first_rank(kind: str) -> None:
    incident = CountedIncident("j-1", "process", kind)
    assert incident.is_of_program == (KINDS[kind] is Side.SCRIPT)


@pytest.mark.parametrize("kind", ["", "a kind of a newer version"])
def test_where_no_rank_died_or_nobody_knows_how_the_program_is_not_at_fault(kind: str) -> None:
    assert not CountedIncident("j-1", "node", kind).is_of_program


def test_only_incidents_of_the_program_are_its_time() -> None:
    ledger = _of_two_incidents()
    of_program = CountedIncident("j-1", "process", "exception")
    of_node = CountedIncident("j-2", "process", "device")
    assert time_of_program(ledger, [of_program, of_node], 20 * S) == ledger.totals(20 * S, "j-1")
    assert not time_of_program(ledger, [of_node], 20 * S)


def test_stages_of_failures_that_are_over_are_seconds_and_planned_work_is_none() -> None:
    ledger = _of_two_incidents()
    over, open_ = CountedIncident("j-1", "node"), CountedIncident("j-2", "node", over=False)
    (stages,) = recoveries(ledger, [over, open_], 20 * S)
    expected = {one.value: ns / S for one, ns in ledger.totals(20 * S, "j-1").items()}
    assert stages == pytest.approx(expected)
    assert stages[Category.DRAIN.value] == pytest.approx(2.0)
    planned = [CountedIncident("j-1", cause) for cause in PLANNED_WORK]
    assert list(recoveries(ledger, planned, 20 * S)) == []


def test_an_incident_whose_time_is_not_known_any_more_is_left_out() -> None:
    assert list(recoveries(_of_two_incidents(), [CountedIncident("j-9", "node")], 20 * S)) == []
