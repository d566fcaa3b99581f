"""The life of a job on one node: every pair of the table, and the record that follows it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.jobs.state.autonomous_restart_policy import Autonomy
from everstep_agent.jobs.state.facts import Ending, JobFacts
from everstep_agent.jobs.state.job_record import JobRecord
from everstep_agent.jobs.state.lifecycle import (
    IGNORED,
    TRANSITIONS,
    Effect,
    JobEvent,
    JobState,
    step,
)
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_agent.jobs.state.store import JobStore, open_database
from everstep_agent.vault.snapshots.cadence import CadenceRule
from everstep_common.reports import Phase, RankExited

_RUNS = (JobState.RUNNING, JobState.RESTARTING)


@pytest.mark.parametrize("pair", list(product(JobState, JobEvent)))
def test_every_pair_is_in_the_table_or_ignored_with_a_reason(
    pair: tuple[JobState, JobEvent],
) -> None:
    assert (pair in TRANSITIONS) != (pair in IGNORED)
    if pair in IGNORED:
        assert IGNORED[pair]
        assert step(*pair).to is pair[0]
        assert not step(*pair).effects


def test_an_end_is_an_end_in_every_state() -> None:
    for state in JobState:
        assert step(state, JobEvent.END_ORDERED).to is JobState.ENDED


def test_only_a_job_that_the_agent_stopped_is_restarted_by_it() -> None:
    found = {
        pair for pair, taken in TRANSITIONS.items() if Effect.RESTART_IN_PLACE in taken.effects
    }
    assert found == {(JobState.RESTARTING, JobEvent.STOP_COMPLETED)}


def test_what_stops_is_answered_in_every_state() -> None:
    for state in JobState:
        effects = step(state, JobEvent.STOP_COMPLETED).effects
        assert effects in ((Effect.REPORT_STOPPED,), (Effect.RESTART_IN_PLACE,))
        assert Effect.STOP_PROCESSES in step(state, JobEvent.STOP_ORDERED).effects


@pytest.fixture
def store() -> Iterator[JobStore]:
    with closing(open_database(":memory:")) as database:
        yield JobStore(database)


def _plan(generation: int) -> Plan:
    return replace(NO_PLAN, id=f"start/{generation}", job="demo", generation=generation)


def _record(store: JobStore, generation: int = 4) -> JobRecord:
    record = JobRecord(JobFacts("demo"), store)
    record.begin(_plan(generation), Autonomy(planned=generation))
    return record


def test_each_change_is_saved_when_it_is_made(store: JobStore) -> None:
    record = _record(store)
    assert store.load() == [record.facts]
    record.order_stop(4)
    assert store.load() == [record.facts]
    assert record.facts.state is JobState.STOPPING


def test_a_job_that_gets_an_id_is_kept_under_it_alone(store: JobStore) -> None:
    record = _record(store)
    record.identify("demo-1", "demo-1")
    assert store.load() == [record.facts]


def test_one_whose_new_row_cannot_be_written_keeps_the_one_before() -> None:
    with closing(open_database(":memory:")) as database:
        store = JobStore(database)
        record = _record(store)
        before = record.facts
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON job BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
        record.identify("demo-1", "demo-1")
        assert store.trouble == "no room"
        assert store.load() == [before]
        database.execute("DROP TRIGGER full")
        record.note_free_port(7)
        assert record.facts in store.load()


def test_a_job_that_is_given_a_launcher_after_its_end_goes_on(store: JobStore) -> None:
    record = _record(store)
    record.end(Ending(succeeded=False, reason="it was said to be over"), 4)
    record.take_place(JobFacts("demo"))
    assert record.facts.state is JobState.STOPPED
    assert record.facts.ending == Ending()
    assert not record.facts.active


def test_one_that_has_not_ended_is_as_far_as_before(store: JobStore) -> None:
    record = _record(store)
    record.take_place(JobFacts("demo"))
    assert record.facts.state is JobState.RUNNING


def test_nothing_is_left_over_from_the_generation_before(store: JobStore) -> None:
    record = _record(store)
    record.reach_phase(Phase.ATTACHED)
    record.abandon_processes((7,), ())
    record.end(Ending(succeeded=True, reason="done"), 4)
    record.begin(replace(NO_PLAN, job="demo", generation=5), Autonomy(planned=5))
    again = _record(store, 5)
    assert record.facts.processes == again.facts.processes
    assert record.facts.ending == again.facts.ending
    assert record.facts.state is JobState.RUNNING


def test_the_stop_of_an_older_generation_leaves_the_newest_one_running(store: JobStore) -> None:
    record = _record(store)
    assert record.order_stop(3) == (Effect.STOP_PROCESSES,)
    assert record.facts.state is JobState.RUNNING
    assert record.complete_stop(3, asked=True) == (Effect.REPORT_STOPPED,)
    assert record.facts.state is JobState.RUNNING
    assert record.facts.active


def test_a_generation_whose_stop_is_still_to_come_keeps_the_job_stopping(store: JobStore) -> None:
    record = _record(store)
    record.order_stop(5)
    assert record.complete_stop(4, asked=True) == (Effect.REPORT_STOPPED,)
    assert (record.facts.state, record.facts.stop_due) == (JobState.STOPPING, 5)
    record.complete_stop(5, asked=True)
    assert (record.facts.state, record.facts.stop_due) == (JobState.STOPPED, 0)


def test_a_plan_whose_stop_came_before_it_is_stopped_at_once(store: JobStore) -> None:
    record = JobRecord(JobFacts("demo"), store)
    record.order_stop(5)
    effects = record.begin(replace(NO_PLAN, job="demo", generation=4), Autonomy(planned=4))
    assert effects == (Effect.BEGIN_GENERATION, Effect.STOP_PROCESSES)
    assert (record.facts.state, record.facts.stop_due) == (JobState.STOPPING, 5)


def test_the_controllers_stop_ends_what_the_agent_had_in_mind(store: JobStore) -> None:
    record = _record(store)
    assert record.decide_restart(7) == (Effect.STOP_PROCESSES,)
    assert record.facts.stop_due == 4
    record.order_stop(4)
    assert record.complete_stop(4, asked=True) == (Effect.REPORT_STOPPED,)


def test_the_users_end_does_too(store: JobStore) -> None:
    record = _record(store)
    record.decide_restart(7)
    record.leave()
    assert record.complete_stop(4, asked=True) == (Effect.REPORT_STOPPED,)


def test_processes_that_nobody_stopped_are_not_restarted(store: JobStore) -> None:
    record = _record(store)
    record.decide_restart(7)
    assert record.complete_stop(4, asked=False) == ()
    assert record.facts.state is JobState.STOPPED


def test_a_job_that_goes_on_from_one_that_has_ended_has_its_memory_and_nothing_else(
    store: JobStore,
) -> None:
    record = _record(store)
    record.identify("demo-1", "demo-1")
    record.direct(b"directive", 4, CadenceRule(), b"key")
    record.count_failure(RankExited(generation=4, rank=0, exit_code=1, signal=0, last_line=""))
    record.end(Ending(reason="failed"), 4)
    record.identify("demo-9", "demo-1")
    facts = record.facts
    assert (facts.key, facts.lineage, facts.state) == ("demo-9", "demo-1", JobState.NEW)
    assert (facts.plan, facts.ending, facts.autonomy) == (NO_PLAN, Ending(), Autonomy())
    assert (facts.directive, facts.owner.transfer_key) == (b"directive", b"key")
    # What is left of the one before is fenced off by its number.
    assert facts.stops.completed == 4
    assert store.load() == [facts]
    assert record.begin(_plan(5), Autonomy(planned=5)) == (Effect.BEGIN_GENERATION,)


def test_a_job_that_runs_and_gets_another_id_is_the_same_job(store: JobStore) -> None:
    record = _record(store)
    before = record.facts
    record.identify("demo-9", "demo-1")
    assert record.facts == replace(before, job_id="demo-9", lineage_id="demo-1")
    assert store.load() == [record.facts]


_EVENTS = ["order", "restart", "stop", "leave", "asked", "gone"]
_CALLS = st.lists(
    st.tuples(
        st.sampled_from([*_EVENTS, "begin", "end", "next"]),
        st.integers(1, 6),
    ),
    max_size=20,
)


def _do(record: JobRecord, call: str, generation: int) -> None:
    facts = record.facts
    if call == "begin" and generation > max(facts.plan.generation, facts.stops.completed):
        record.begin(replace(NO_PLAN, job="demo", generation=generation), Autonomy())
    elif call == "order" and generation > facts.stops.completed:
        record.order_stop(generation)
    elif call == "restart":
        record.decide_restart(1)
    elif call in ("stop", "leave"):
        (record.decide_stop if call == "stop" else record.leave)()
    elif call in ("asked", "gone"):
        record.complete_stop(min(generation, facts.newest_generation), asked=call == "asked")
    elif call == "end":
        record.end(Ending(), facts.newest_generation)
    elif call == "next":
        record.identify(f"demo-{generation}", "demo-1")


@given(_CALLS)
def test_the_state_agrees_with_the_marks_whatever_happens(calls: list[tuple[str, int]]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        record = JobRecord(JobFacts("demo"), JobStore(database))
        for call, generation in calls:
            _do(record, call, generation)
            facts = record.facts
            if facts.state in _RUNS:
                assert facts.active
            if facts.state in (JobState.NEW, JobState.STOPPED, JobState.ENDED):
                assert not facts.active
            if facts.state is JobState.STOPPING:
                assert facts.stop_due
