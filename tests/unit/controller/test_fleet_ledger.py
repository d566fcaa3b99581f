"""Ledger of the fleet: each nanosecond of each job's nodes once, in the row that it is of."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.api.admin.errors import UnusableRequestError
from everstep_controller.api.admin.fleet_ledger import (
    DatedIncident,
    Hour,
    LedgerQuestion,
    Periods,
    ledger_of_hours,
    ledger_of_incidents,
    question_of,
)
from everstep_controller.journal.history_rows import IncidentTold, JobHour
from everstep_controller.journal.port import DAY_NS
from everstep_proto.generated import admin_pb2

HOUR = 3_600_000_000_000
# 2026-01-31, a Saturday.
DAY = 1_769_817_600_000_000_000


def hour(job: str, at_ns: int, productive: int, lost: int = 0, **more: int | str) -> Hour:
    totals = {"productive": productive, "lost.recompute": lost}
    told = {name: ns for name, ns in totals.items() if ns}
    return Hour(job, at_ns, JobHour(told, **more))  # type: ignore[arg-type]


def asked(by: str, count: int, now_ns: int, **more: str | float) -> LedgerQuestion:
    kind = by if by in ("day", "week", "month") else "day"
    return LedgerQuestion(by, Periods(kind, count, now_ns), **more)  # type: ignore[arg-type]


def told(question: LedgerQuestion, hours: Iterable[Hour]) -> admin_pb2.FleetLedger:
    return ledger_of_hours(question, {}, hours)


def test_time_is_of_the_period_in_which_its_hour_began_and_weighs_with_its_nodes() -> None:
    hours = [
        hour("a", DAY + HOUR, 40, nodes=8, failures=1),
        hour("a", DAY + DAY_NS + HOUR, 100, 20, nodes=4, failures=3),
        hour("b", DAY + 2 * HOUR, 10, nodes=2),
    ]
    found = told(asked("day", 3, DAY + DAY_NS + 2 * HOUR), hours)
    first, second = found.periods
    assert (first.begin_ns, first.jobs, first.node_ns, first.failures) == (DAY, 2, 340, 1)
    assert (second.begin_ns, second.jobs, second.node_ns) == (DAY + DAY_NS, 1, 60 * 4 + 20 * 4)
    assert second.failures == 2
    assert (first.end_ns, second.end_ns) == (DAY + DAY_NS, DAY + DAY_NS + 2 * HOUR)
    assert second.ettr_time == pytest.approx(60 / 80)
    assert [(one.name, one.time_ns) for one in second.categories] == [
        ("productive", 240),
        ("lost.recompute", 80),
    ]
    assert (found.whole.node_ns, found.whole.failures, found.whole.jobs) == (660, 3, 2)


def test_a_job_on_another_number_of_nodes_is_weighed_by_what_it_had_when() -> None:
    before = {"a": JobHour({"productive": 100}, nodes=8)}
    hours = [Hour("a", DAY, JobHour({"productive": 150}, nodes=4, node_ns={"productive": 1000}))]
    found = ledger_of_hours(asked("day", 1, DAY + HOUR), before, hours)
    assert found.whole.node_ns == 200


def test_a_job_on_fewer_nodes_than_it_may_have_is_less_effective_by_devices() -> None:
    hours = [hour("a", DAY, 60, 20, nodes=3, nodes_max=4, devices_per_node=8)]
    (row,) = told(asked("job", 1, DAY + HOUR), hours).periods
    assert (row.key, row.device_ns) == ("a", 80 * 3 * 8)
    assert row.ettr_time == pytest.approx(60 / 80)
    assert row.ettr_devices == pytest.approx(60 * 3 / (80 * 4))


def test_what_was_before_the_first_period_counts_for_none() -> None:
    before = {"a": JobHour({"productive": 1000})}
    hours = [hour("a", DAY + HOUR, 1040)]
    found = ledger_of_hours(asked("day", 1, DAY + 2 * HOUR), before, hours)
    assert [one.node_ns for one in found.periods] == [40]


def test_a_step_that_is_taken_back_counts_against_the_day_on_which_it_is() -> None:
    hours = [hour("a", DAY + HOUR, 100), hour("a", DAY + DAY_NS, 90, 30)]
    found = told(asked("day", 2, DAY + DAY_NS + HOUR), hours)
    assert [one.node_ns for one in found.periods] == [100, 20]
    assert found.periods[1].categories[-1].time_ns == -10


def test_queues_and_accounts_are_told_with_their_price() -> None:
    hours = [
        hour("a", DAY, HOUR, queue="big", account="nlp", nodes=2, devices_per_node=8),
        hour("b", DAY, HOUR, HOUR, queue="big", account="vision"),
        hour("c", DAY, HOUR, account="nlp"),
    ]
    by_queue = told(asked("queue", 1, DAY + HOUR, price=2.5), hours)
    assert [(one.key, one.jobs) for one in by_queue.periods] == [("big", 2), ("(none)", 1)]
    assert [one.cost for one in by_queue.periods] == pytest.approx([45.0, 2.5])
    assert by_queue.periods[0].cost_lost == pytest.approx(2.5)
    by_account = told(asked("account", 1, DAY + HOUR), hours)
    assert [one.key for one in by_account.periods] == ["nlp", "vision"]
    assert by_account.whole.device_ns == by_queue.whole.device_ns == 19 * HOUR


def test_one_job_is_asked_for_by_its_name_or_its_id() -> None:
    hours = [hour("a-1", DAY, 5, name="a"), hour("b-1", DAY, 7, name="b")]
    for name in ("b", "b-1"):
        assert told(asked("day", 1, DAY + HOUR, job=name), hours).whole.node_ns == 7


def incident(
    number: int, cause: str, cost: int, node: str = "", device: str = "", generation: int = 1
) -> DatedIncident:
    content = IncidentTold(
        job="a-1", cause=cause, message="m", failure=cause != "drain", name="a",
        node_costs={"inc.detect": cost}, devices_per_node=8,
        node=node, device=device, generation=generation,
    )  # fmt: skip
    return DatedIncident(f"a-1.{number}", DAY + number, content)


def test_incidents_are_told_by_cause_node_device_and_generation_with_their_ids() -> None:
    incidents = [
        incident(1, "node", 10, node="n1", device="gpu/3", generation=1),
        incident(2, "process", 20, node="n1", generation=2),
        incident(3, "node", 30, node="n2", generation=3),
        incident(4, "drain", 5, generation=3),
    ]
    keys: Mapping[str, list[str]] = {
        "cause": ["node", "process", "drain"],
        "node": ["n1", "n2", "(none)"],
        "device": ["(none)", "n1 gpu/3"],
        "generation": ["a-1 generation 3", "a-1 generation 2", "a-1 generation 1"],
    }
    for by, expected in keys.items():
        found = ledger_of_incidents(asked(by, 1, DAY + HOUR), incidents)
        assert sorted(one.key for one in found.periods) == sorted(expected)
        assert found.whole.device_ns == sum(one.device_ns for one in found.periods) == 65 * 8
        assert (found.whole.incidents, found.whole.failures) == (4, 3)
    by_cause = ledger_of_incidents(asked("cause", 1, DAY + HOUR), incidents).periods[0]
    assert (by_cause.key, list(by_cause.incident_ids)) == ("node", ["a-1.1", "a-1.3"])


@pytest.mark.parametrize(
    ("kind", "begin"),
    [("day", DAY), ("week", DAY - 5 * DAY_NS), ("month", DAY - 30 * DAY_NS)],
)
def test_periods_begin_as_the_calendar_has_them(kind: str, begin: int) -> None:
    periods = Periods(kind, 1, DAY + 5 * HOUR)
    assert periods.first_ns == periods.begin(DAY + HOUR) == begin
    assert periods.begin(begin - 1) < begin


def test_what_there_is_not_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnusableRequestError, match=r"by 'hour'; there is day, week, .*generation"):
        question_of(admin_pb2.GetFleetLedgerRequest(period="hour"), DAY)
    with pytest.raises(UnusableRequestError, match="ask for the last 1 to 400"):
        question_of(admin_pb2.GetFleetLedgerRequest(periods=401), DAY)


_GAINS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 10**12)), max_size=12)


@given(
    st.dictionaries(st.sampled_from("abc"), _GAINS),
    st.sampled_from(["day", "week", "month", "job", "queue"]),
)
def test_all_rows_together_are_all_the_time_there_is(
    gains: dict[str, list[tuple[int, int]]], by: str
) -> None:
    hours = []
    for job, gained_later in sorted(gains.items()):
        at_ns, sum_ns = DAY, 0
        for later, gained in gained_later:
            at_ns, sum_ns = at_ns + later * HOUR, sum_ns + gained
            hours.append(hour(job, at_ns, sum_ns))
    found = told(asked(by, 400, DAY + 400 * HOUR), hours)
    whole = sum(gained for told in gains.values() for _, gained in told)
    assert found.whole.node_ns == whole
    assert sum(one.node_ns for one in found.periods) == whole
