"""Who may join and attach, by the facts alone."""

from dataclasses import replace

import pytest

from everstep_agent.ipc.processes import ProcessIdentity
from everstep_agent.jobs.sessions.admission import attach_refusal, join_refusal
from everstep_agent.jobs.state.facts import (
    JobFacts,
    LauncherPlace,
    RankProcesses,
    SnapshotOwner,
    StopMarks,
)
from everstep_agent.jobs.state.lifecycle import JobState
from everstep_agent.jobs.state.plan import Plan
from everstep_agent.jobs.state.store import JobStore, open_database
from everstep_common.job_ids import token_hash
from everstep_common.launcher_messages import Join
from everstep_common.orders import ShardSource
from everstep_common.rank_messages import Attach, DataRange
from everstep_common.reports import StoredStep
from everstep_common.version import TRAINER_PROTOCOL

_JOIN = Join(
    protocol=TRAINER_PROTOCOL,
    version="0.1.0",
    job="demo",
    token="secret",
    nodes_min=1,
    nodes_max=1,
    processes_per_node=1,
    reform=True,
    restarts_max=1,
    free_port=1,
)
_ATTACH = Attach(
    protocol=TRAINER_PROTOCOL, version="0.1.0", job="demo", token="secret", generation=4, rank=2
)


# Every field has a value of its own, so that none can be lost.
_PLAN = Plan(
    id="demo/g4/start/node-0",
    node="",
    reason="test",
    job="demo",
    generation=4,
    job_id="demo-21",
    node_rank=1,
    node_count=2,
    first_rank=2,
    processes=5,
    world_size=7,
    master_address="node-0",
    master_port=29500,
    restore_step=9,
    sources=(
        ShardSource(
            node="node-1",
            generation=3,
            rank=6,
            step=9,
            root_hash="0123",
            size_bytes=4096,
            layout="4567",
            bulk_address="node-1:7436",
            on_disk=True,
        ),
    ),
    stored=StoredStep(
        generation=3,
        step=9,
        world_size=8,
        manifest_hash="89ab",
        size_bytes=8192,
        skipped=(DataRange(1, 2),),
    ),
    skipped=(DataRange(3, 4), DataRange(6, 8)),
    transfer_key=b"key",
    own_restarts=3,
    renew=True,
)
_FACTS = JobFacts(
    "demo",
    state=JobState.RUNNING,
    plan=replace(_PLAN, first_rank=2, processes=2),
    place=LauncherPlace(uid=7, token_sha256=token_hash("secret")),
    owner=SnapshotOwner(uid=7),
    stops=StopMarks(3, 3),
)


def test_the_first_launcher_of_a_job_sets_user_and_token() -> None:
    assert join_refusal(JobFacts("demo"), _JOIN, 12) is None


@pytest.mark.parametrize(("uid", "token"), [(8, "secret"), (7, "guess")])
def test_a_later_launcher_needs_both(uid: int, token: str) -> None:
    assert join_refusal(_FACTS, replace(_JOIN, token=token), uid)


def test_after_the_end_the_name_is_free() -> None:
    facts = replace(_FACTS, state=JobState.ENDED)
    assert join_refusal(facts, replace(_JOIN, token="other"), 8) is None


def test_a_process_of_the_plan_may_attach() -> None:
    assert attach_refusal(_FACTS, _ATTACH, 7) is None


@pytest.mark.parametrize(
    "attach",
    [
        replace(_ATTACH, generation=3),
        replace(_ATTACH, generation=5),
        replace(_ATTACH, rank=1),
        replace(_ATTACH, rank=4),
        replace(_ATTACH, token="guess"),
        replace(_ATTACH, protocol=0),
    ],
)
def test_any_other_may_not(attach: Attach) -> None:
    assert attach_refusal(_FACTS, attach, 7)


def test_neither_may_another_user_or_anybody_once_the_generation_is_stopped() -> None:
    assert attach_refusal(_FACTS, _ATTACH, 8)
    facts = replace(_FACTS, stops=StopMarks(4, 4))
    assert attach_refusal(facts, _ATTACH, 7)
    assert attach_refusal(None, _ATTACH, 7)


def test_facts_are_the_same_after_a_restart() -> None:
    database = open_database(":memory:")
    store = JobStore(database)
    facts = replace(
        _FACTS,
        plan=_PLAN,
        place=LauncherPlace(uid=7, process=ProcessIdentity(5, 77)),
        processes=RankProcesses(running=(ProcessIdentity(6, 78),)),
        owner=SnapshotOwner(uid=7, transfer_key=b"key"),
    )
    store.save(facts)
    store.save(facts)
    database.execute("INSERT INTO job VALUES ('broken', '{}', x'')")
    database.execute("INSERT INTO job VALUES ('torn', '{\"job\": \"torn\"}', x'ff')")
    assert JobStore(database).load() == [facts]
    assert store.next_incarnation() + 1 == store.next_incarnation()
    store.forget(facts.key)
    assert store.load() == []
    database.close()


def test_a_job_whose_launcher_is_gone_from_here_is_not_anybodys() -> None:
    facts = replace(_FACTS, place=LauncherPlace())
    assert join_refusal(facts, _JOIN, 8)
    assert join_refusal(facts, replace(_JOIN, token="other"), 7) is None


def test_a_job_that_is_not_known_is_asked_the_same_questions() -> None:
    assert join_refusal(None, _JOIN, 12) is None
    assert join_refusal(None, replace(_JOIN, protocol=TRAINER_PROTOCOL + 1), 12)


def test_an_agent_that_cannot_write_goes_on() -> None:
    database = open_database(":memory:")
    store = JobStore(database)
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    store.save(replace(_FACTS, plan=replace(_PLAN, transfer_key=bytes(1 << 20))))
    assert store.load() == []
