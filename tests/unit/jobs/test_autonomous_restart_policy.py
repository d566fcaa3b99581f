"""What an agent may decide about a job while the controller is away."""

from dataclasses import replace

import pytest

from everstep_agent.jobs.state.autonomous_restart_policy import (
    Autonomy,
    HeldCopy,
    Remedy,
    RestartDecision,
    decide_restart,
    newest_whole_step,
    plan_restart,
)
from everstep_agent.jobs.state.plan import NO_PLAN
from everstep_common.reports import RankExited, StoredStep

KILLED = RankExited(
    generation=4,
    rank=1,
    exit_code=0,
    signal=9,
    kind="killed",
    exception="",
    last_line="",
    at_boot_ns=5,
    step=7,
)
BOOM = replace(
    KILLED, signal=0, exit_code=1, kind="exception", exception="ValueError: <X at 0x7f01>"
)


_PLAN = replace(
    NO_PLAN,
    job="demo",
    generation=4,
    node_count=1,
    processes=2,
    world_size=2,
    own_restarts=2,
)
_STORED = StoredStep(1, 2, world_size=2, manifest_hash="89", size_bytes=8)


def _decided(*failures: RankExited, restorable: bool = True, spoiled: int = 0) -> RestartDecision:
    own = Autonomy(planned=3, failures=failures, spoiled=spoiled)
    decision = decide_restart(_PLAN, own, restorable=restorable)
    assert decision is not None
    return decision


def _copy(generation: int, rank: int, step: int) -> HeldCopy:
    return HeldCopy(
        generation=generation, rank=rank, step=step, root_hash=b"h", size_bytes=8, layout=b"l"
    )


def test_a_job_that_is_all_here_is_restarted() -> None:
    decision = _decided(KILLED)
    assert decision.remedy is Remedy.RESTART
    assert decision.sentence == (
        "restarted here while the controller is away, because rank 1 was killed by signal 9"
    )


def test_without_a_failure_there_is_nothing_to_decide() -> None:
    older = replace(KILLED, generation=3)
    assert decide_restart(_PLAN, Autonomy(planned=3, failures=(older,)), restorable=True) is None


@pytest.mark.parametrize(
    ("failure", "values", "why"),
    [
        (KILLED, {"node_count": 2}, "other nodes"),
        (replace(KILLED, kind="device"), {}, "the node itself"),
    ],
)
def test_what_is_not_the_agents_affair_waits(
    failure: RankExited, values: dict[str, object], why: str
) -> None:
    own = Autonomy(planned=3, failures=(failure,))
    decision = decide_restart(replace(_PLAN, **values), own, restorable=True)  # type: ignore[arg-type]
    assert decision is not None
    assert decision.remedy is Remedy.HOLD
    assert "rank 1 was killed by signal 9; the controller is away: the job waits" in (
        decision.sentence
    )
    assert why in decision.sentence


def test_a_job_waits_when_its_restarts_are_used_up_or_a_rank_called_its_state_bad() -> None:
    own = Autonomy(planned=2, failures=(KILLED,))
    used = decide_restart(replace(_PLAN, own_restarts=0), own, restorable=True)
    assert used is not None
    assert used.remedy is Remedy.HOLD
    assert "restarted 2 times" in used.sentence
    assert _decided(KILLED, spoiled=4).remedy is Remedy.HOLD
    assert _decided(KILLED, spoiled=3).remedy is Remedy.RESTART


def test_a_job_waits_when_only_others_could_give_back_its_state() -> None:
    decision = _decided(KILLED, restorable=False)
    assert decision.remedy is Remedy.HOLD
    assert "no step is whole" in decision.sentence


def test_the_programs_own_error_at_the_same_step_twice_stops_it() -> None:
    before = replace(BOOM, generation=3, exception="ValueError: <X at 0x8e02>")
    assert _decided(before, BOOM).remedy is Remedy.STOP
    assert _decided(replace(before, step=6), BOOM).remedy is Remedy.RESTART
    assert _decided(replace(KILLED, generation=3), KILLED).remedy is Remedy.RESTART
    # Nobody wrote its steps down: what repeats is all that is known.
    unseen = replace(BOOM, step=None)
    assert _decided(replace(unseen, generation=3), unseen).remedy is Remedy.STOP


def test_what_only_follows_from_another_death_is_not_the_cause() -> None:
    first = replace(KILLED, rank=0, kind="collective", signal=0, exit_code=1, at_boot_ns=1)
    assert "rank 1 was killed" in _decided(first, KILLED).sentence


def test_a_failure_that_is_told_again_counts_once() -> None:
    own = Autonomy().with_failure(KILLED).with_failure(replace(KILLED, at_boot_ns=9))
    assert own.failures == (KILLED,)


def test_the_newest_step_that_all_ranks_have_in_memory_is_taken() -> None:
    copies = [_copy(4, rank, step) for step in (5, 6) for rank in (0, 1)]
    copies += [_copy(4, 0, 7), _copy(3, 0, 9), _copy(3, 1, 9)]
    assert {(one.rank, one.step) for one in newest_whole_step(copies, _PLAN)} == {(0, 6), (1, 6)}
    assert newest_whole_step(copies[:1], _PLAN) == []


def test_the_next_plan_restores_what_is_here_under_the_next_number() -> None:
    plan = replace(_PLAN, stored=_STORED, master_port=1)
    own = plan_restart(plan, [_copy(4, 0, 6), _copy(4, 1, 6)], "n0", 29500)
    assert (own.generation, own.own_restarts, own.master_port) == (5, 1, 29500)
    assert (own.restore_step, own.stored) == (6, None)
    assert [(one.node, one.rank, one.step) for one in own.sources] == [("n0", 0, 6), ("n0", 1, 6)]
    assert own.restored_generation == 4


def test_without_a_step_of_its_own_the_next_plan_restores_what_the_last_one_did() -> None:
    stored = replace(_STORED, generation=2, step=3)
    own = plan_restart(replace(_PLAN, restore_step=3, stored=stored), [], "n0", 0)
    assert (own.generation, own.restore_step, own.stored) == (5, 3, stored)
    assert own.restored_generation == 2
    assert plan_restart(_PLAN, [], "n0", 0).restored_generation == 0
