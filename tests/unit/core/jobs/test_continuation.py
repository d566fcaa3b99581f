"""A new job of a name that was used before: it goes on from what is left, or from scratch."""

from dataclasses import replace
from typing import TypeVar

import pytest

from everstep_common import reports
from everstep_common.orders import ShardSource
from everstep_common.reports import JobOnNode, StoredStep
from everstep_controller.core import actions, events
from everstep_controller.core.jobs.identity import ago
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_job_endings import STORAGE, LongStory
from unit.core.test_decisions import launcher_joined

MINUTE_S = 60


class NextStory(LongStory):
    """A job that has failed or was left, and the next launchers of its name."""

    def join(
        self, node: str, *, token: str = "t", uid: int = 1, fresh: bool = False, nodes: int = 2
    ) -> list[actions.Action]:
        joined = events.Reported(
            self.origin(node),
            0,
            launcher_joined(
                uid=uid,
                token_sha256=token,
                nodes_min=nodes,
                nodes_max=nodes,
                restarts_max=9,
                storage=self.storage,
                latest=self.latest,
                fresh=fresh,
            ),
            "j",
        )
        return self.tell(joined)

    def vanish(self, node: str) -> list[actions.Action]:
        origin = Origin(node, f"{node}-box", self.sequence + 1)
        self.sequence += 1
        return self.tell(
            events.Reported(origin, 0, reports.LauncherLeft("its process ended", False), "j")
        )

    def cancelled(self, after_s: float = 0.1) -> None:
        """Train to step 2, have the user end it, and let time go by."""
        self.run()
        self.train(1, 2)
        for node in ("n0", "n1"):
            self.leave(node)
            self.sequence += 1
        self.stop_all()
        assert self.ended()
        self.tell(events.TimerDue("nothing"), after_s=after_s)

    def chosen(self, step: int | None, *, lost: str = "", tier: str = "memory") -> JobRecord:
        """Answer the question which step to begin with."""
        source = ShardSource("n0", "n0:1", 1, 0, step or 0, "aa", 8)
        sources = () if step is None else (source, replace(source, node="n1", rank=1))
        event = events.RecoveryStepChosen(
            job="j",
            generation=self.job.generation.number,
            step=step,
            sources=sources,
            lost=lost,
            reason="no snapshot was committed yet",
            step_generation=0 if step is None else 1,
            tier=tier,
        )
        self.tell(event)
        return self.job


_A = TypeVar("_A")


def _of(kind: type[_A], done: list[actions.Action]) -> list[_A]:
    return [action for action in done if isinstance(action, kind)]


def _question(story: NextStory) -> actions.ChooseRecoveryStep:
    (question,) = [
        action for action in story.core.due(0) if isinstance(action, actions.ChooseRecoveryStep)
    ]
    return question


def test_the_next_job_asks_for_the_newest_step_of_the_one_that_was_cancelled() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.join("n2")
    story.join("n3")
    question = _question(story)
    assert question.branch == (BranchPoint(1, None, 2),)
    assert (question.generation, question.expected) == (2, True)
    assert (set(question.holders), question.settled_generation) == ({"n0", "n1"}, 1)


def test_it_says_in_one_sentence_what_it_goes_on_from() -> None:
    story = NextStory(nodes=4)
    story.cancelled(after_s=3 * MINUTE_S)
    story.join("n2")
    story.join("n3")
    job = story.chosen(2)
    sentence = (
        "continues after step 2 of the job that was cancelled 3 min ago, from memory of n0, n1; "
        "use --fresh to start from scratch"
    )
    assert job.lineage.begun == sentence
    assert job.generation.start_reason == f"generation 2 {sentence}"
    assert job.lineage.branch == [BranchPoint(1, 2, 2), BranchPoint(2, None, 2)]
    orders = [a for a in story.core.due(0) if isinstance(a, actions.StartGeneration)]
    assert {(order.node, order.restore_step) for order in orders} == {("n2", 2), ("n3", 2)}


def test_nodes_keep_what_they_have_from_the_first_launcher_on() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    kept = _of(actions.KeepJob, story.join("n2"))
    assert {action.node for action in kept} == {"n0", "n1"}
    # One that was away then is told when it is back, if it still has something.
    assert _of(actions.KeepJob, _back(story, "n0", JobOnNode("j", 1, launcher=False)))
    assert not _of(actions.KeepJob, _back(story, "n1"))
    assert set(story.job.lineage.holders) == {"n0"}


def _back(story: NextStory, node: str, *jobs: JobOnNode) -> list[actions.Action]:
    hello = events.NodeConnected(
        node=node,
        boot_id="1",
        agent_version="",
        outbox=f"{node}-box",
        highest_term=0,
        host=node,
        jobs=jobs,
    )
    return story.tell(hello)


def test_the_next_job_may_have_another_size() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.join("n3", nodes=1)
    job = story.chosen(2)
    assert (job.generation.members, job.world_size, job.lineage.restored) == (["n3"], 1, (1, 2))


def test_the_holders_are_told_when_the_next_job_ends() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.join("n2")
    ended = _of(actions.EndJob, story.leave("n2"))
    assert {action.node for action in ended} == {"n0", "n1"}


def test_what_a_job_never_ran_had_goes_on_to_the_next() -> None:
    story = NextStory(nodes=4)
    story.cancelled(after_s=5 * MINUTE_S)
    story.join("n2")
    story.leave("n2")
    story.sequence += 1
    assert story.ended()
    story.join("n2")
    story.join("n3")
    assert "was cancelled 5 min ago" in story.chosen(2).lineage.begun
    assert story.job.lineage.branch[0] == BranchPoint(1, 2, 2)


@pytest.mark.parametrize(("uid", "token"), [(2, "t"), (1, "other")])
def test_whoever_gets_nothing_of_a_job_has_a_lineage_of_its_own(uid: int, token: str) -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    before = story.job
    story.join("n2", nodes=1, uid=uid, token=token)
    assert before.lineage_id == before.id
    assert story.job.lineage_id == story.job.id != before.id


def test_jobs_that_go_on_from_each_other_have_the_lineage_of_the_first() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    first = story.job
    story.join("n2", nodes=1)
    second = story.chosen(2)
    story.leave("n2")
    story.sequence += 1
    story.stop_all()
    story.join("n3", nodes=1)
    third = story.job
    assert len({first.id, second.id, third.id}) == 3
    assert {one.lineage_id for one in (first, second, third)} == {first.id}


def test_a_job_that_begins_anew_has_a_lineage_of_its_own() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.join("n2", nodes=1, fresh=True)
    assert story.job.lineage_id == story.job.id


@pytest.mark.parametrize(("uid", "token"), [(2, "t"), (1, "other")])
def test_another_user_and_another_token_get_nothing_of_it(uid: int, token: str) -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    done = story.join("n2", nodes=1, uid=uid, token=token)
    # What its user gives up with the token is dropped; another user's is not to be touched.
    forgotten = {action.node for action in _of(actions.ForgetJob, done)}
    assert forgotten == (set() if uid == 2 else {"n0", "n1"})
    question = _question(story)
    assert (question.branch, question.generation, question.expected) == ((), 2, False)
    assert "starts from scratch" in story.chosen(None).generation.start_reason


def test_a_user_goes_on_from_an_own_job_though_another_user_had_the_name_since() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    mine = story.job
    story.join("n2", nodes=1, uid=2)
    theirs = story.chosen(None)
    story.leave("n2")
    story.sequence += 1
    story.stop_all()
    assert theirs.state is JobState.ENDED
    kept = _of(actions.KeepJob, story.join("n3", nodes=1))
    assert {(one.node, one.lineage_id) for one in kept} == {("n0", mine.id), ("n1", mine.id)}
    question = _question(story)
    # Its numbers are newer than those of both.
    assert (question.branch, question.generation) == ((BranchPoint(1, None, 2),), 3)
    assert set(question.holders) == {"n0", "n1"}
    assert story.job.lineage_id == mine.id
    assert "of the job that was cancelled" in story.chosen(2).lineage.begun


def test_what_a_node_that_comes_back_has_is_of_the_job_whose_state_it_is() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    mine = story.job
    story.join("n2", nodes=1, uid=2)
    _back(story, "n0", JobOnNode("j", 1, launcher=False, job_id=mine.id, lineage_id=mine.id))
    _back(story, "n1")
    assert set(mine.lineage.holders) == {"n0"}
    assert not story.job.lineage.holders


def test_fresh_begins_anew_and_says_what_it_leaves() -> None:
    story = NextStory(nodes=4)
    story.cancelled(after_s=40)
    story.join("n2", nodes=1, fresh=True)
    question = _question(story)
    assert (question.branch, question.expected) == ((), False)
    assert story.chosen(None).generation.start_reason == (
        "generation 2 starts from scratch, as --fresh asks, and leaves the state"
        " of the job that was cancelled 40 s ago, after step 2"
    )
    story.train(0, 1)
    assert story.crash().branch == (BranchPoint(2, None, 1),)


def test_one_launcher_that_wants_to_begin_anew_is_enough_in_any_order() -> None:
    for first, second in ((True, False), (False, True)):
        story = NextStory(nodes=4)
        story.cancelled()
        story.join("n2", fresh=first)
        story.join("n3", fresh=second)
        assert _question(story).branch == ()


def test_fresh_leaves_a_step_in_storage_too_and_counts_on_from_its_generation() -> None:
    story = NextStory()
    story.storage, story.latest = STORAGE, StoredStep(4, 40, 2, "aa", 8)
    story.join("n0", fresh=True)
    story.join("n1", fresh=True)
    question = _question(story)
    assert (question.branch, question.stored, question.generation) == ((), (), 5)


def test_a_launcher_of_a_running_job_that_says_fresh_changes_nothing() -> None:
    story = NextStory(nodes=3)
    story.run()
    story.train(1)
    story.join("n2", fresh=True)
    assert story.job.lineage.branch == [BranchPoint(1, None, 2)]
    assert story.job.state is JobState.RUNNING


def test_a_job_that_ended_well_or_was_forgotten_leaves_nothing() -> None:
    story = NextStory()
    story.cancelled()
    story.tell(events.OperatorForgotJob("j", "ops"))
    story.join("n0", nodes=1)
    assert _question(story).branch == ()


def test_a_crash_before_the_end_counts_for_the_next_job() -> None:
    story = NextStory()
    story.run()
    story.train(1, 2, 3)
    story.crash()
    story.restore(1, 3)
    story.train(4)
    story.crash()
    story.restore(1, 3)
    story.train(4)
    # The second crash is the last: it is given up before anybody asks for a step again.
    story.job.spec = replace(story.job.spec, restarts_max=0)
    story.job.recovery.restarts_without_progress = 0
    story.exit_rank("n0")
    story.stop_all()
    assert story.ended()
    for node in ("n0", "n1"):
        story.vanish(node)
    story.join("n0")
    story.join("n1")
    assert _question(story).avoided == ((1, 3),)


@pytest.mark.parametrize("newer", [StoredStep(1, 1, 2, "aa", 8), StoredStep(1, 2, 2, "aa", 8)])
def test_what_storage_has_of_the_same_branch_is_asked_for_beside_memory(newer: StoredStep) -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.storage, story.latest = STORAGE, newer
    story.join("n2")
    story.join("n3")
    question = _question(story)
    assert (question.branch, question.stored) == ((BranchPoint(1, None, 2),), (newer,))


def test_a_newer_generation_in_storage_fences_memory_off() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.storage, story.latest = STORAGE, StoredStep(7, 1, 2, "aa", 8)
    story.join("n2")
    story.join("n3")
    question = _question(story)
    assert (question.branch, question.generation) == ((BranchPoint(7, 1, 2),), 8)


def test_an_abandoned_step_in_storage_is_not_gone_on_from() -> None:
    story = NextStory(nodes=4)
    story.run()
    story.train(1, 2, 3)
    story.crash()
    story.restore(1, 2)
    story.train(3)
    for node in ("n0", "n1"):
        story.leave(node)
        story.sequence += 1
    story.stop_all()
    story.storage, story.latest = STORAGE, StoredStep(1, 3, 2, "aa", 8)
    story.join("n2")
    story.join("n3")
    question = _question(story)
    assert (question.branch[0], question.stored) == (BranchPoint(1, 2, 2), ())


def test_what_is_gone_for_good_is_not_waited_for() -> None:
    story = NextStory()
    story.cancelled(after_s=50 * MINUTE_S)
    story.join("n0")
    story.join("n1")
    job = story.chosen(None, lost="no copy of rank 0 can be reached")
    assert job.state is JobState.STARTING
    assert (
        "starts from scratch: nothing is left of the job that was cancelled"
        in job.generation.start_reason
    )
    assert (job.lineage.recoverable_step, job.lineage.branch) == (None, [BranchPoint(2, None, 2)])


def test_a_node_that_is_away_and_may_have_it_is_waited_for_as_long_as_it_keeps_it() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.lose("n0")
    story.join("n2")
    story.join("n3")
    job = story.chosen(None, lost="no copy of rank 0 can be reached")
    assert job.state is JobState.WAITING_STATE
    assert "start it with --fresh" in job.reason
    story.tell(events.TimerDue(f"retry/{story.job.id}"), after_s=31 * MINUTE_S)
    assert story.chosen(None, lost="gone").state is JobState.STARTING


def test_a_job_whose_launchers_vanished_goes_on_with_new_ones() -> None:
    story = NextStory(nodes=4)
    story.run()
    story.train(1, 2)
    for node in ("n0", "n1"):
        story.vanish(node)
    assert story.job.state is JobState.WAITING_CAPACITY
    story.join("n2", nodes=1)
    question = _question(story)
    assert (question.branch, question.generation) == ((BranchPoint(1, None, 2),), 2)
    assert "of the job that lost its launchers" in story.chosen(2).lineage.begun


def test_a_job_whose_launchers_vanished_ends_when_none_comes() -> None:
    story = NextStory()
    story.run()
    story.train(1, 2)
    for node in ("n0", "n1"):
        story.vanish(node)
    story.tell(events.TimerDue(f"abandoned/{story.job.id}"), after_s=29 * MINUTE_S)
    assert not story.ended()
    story.tell(events.TimerDue(f"abandoned/{story.job.id}"), after_s=2 * MINUTE_S)
    assert story.ended()


def test_the_next_job_is_not_forgotten_with_the_one_before() -> None:
    story = NextStory()
    story.cancelled()
    story.join("n0")
    story.tell(events.TimerDue(f"forget/{story.job.id}"), after_s=8 * 86_400)
    assert story.job.state is JobState.FORMING


def test_a_restarted_controller_goes_on_with_all_of_it() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.join("n2")
    story.core.state = decode_state(encode(story.core.state))
    again = [a for a in story.core.due(0) if isinstance(a, actions.KeepJob)]
    assert {action.node for action in again} == {"n0", "n1"}
    story.join("n3")
    assert _question(story).branch == (BranchPoint(1, None, 2),)


def test_a_node_that_was_cut_off_must_have_stopped_before_a_step_is_chosen() -> None:
    story = NextStory(nodes=4)
    story.cancelled()
    story.join("n2")
    due = [a for a in story.core.due(0) if isinstance(a, actions.StopGeneration)]
    assert {(order.node, order.generation) for order in due} == {("n0", 1), ("n1", 1)}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s ago"), (99, "99 s ago"), (180, "3 min ago"), (7200, "2 h ago")],
)
def test_people_are_told_how_long_ago_it_was(seconds: int, text: str) -> None:
    assert ago(seconds * 1_000_000_000) == text


def _finish(story: LongStory) -> list[actions.Action]:
    done: list[actions.Action] = []
    for node in story.job.generation.members:
        done += story.tell(
            events.Reported(
                story.origin(node),
                story.now_ns,
                reports.GenerationFinished(story.job.generation.number),
                "j",
            )
        )
    return done


def test_a_job_that_ends_well_ends_when_its_last_step_is_in_storage() -> None:
    story = NextStory()
    story.storage = STORAGE
    story.run()
    story.train(1, 2)
    held = _of(actions.HoldLauncher, _finish(story))
    assert {action.node for action in held} == {"n0", "n1"}
    assert not story.ended()
    assert "being brought to storage" in story.job.reason
    done = story.tell(events.FinalSaveEnded("j", 1, "its last step, 2, is in storage"))
    assert all(action.succeeded for action in done if isinstance(action, actions.EndJob))
    assert (story.ended(), story.job.ending.succeeded) == (True, True)


def test_nothing_that_breaks_then_makes_a_success_a_failure() -> None:
    story = NextStory()
    story.storage = STORAGE
    story.run()
    story.train(1, 2)
    _finish(story)
    story.vanish("n1")
    story.find("n0")
    assert not story.ended()
    story.tell(events.TimerDue(f"final_save/{story.job.id}"), after_s=121)
    assert (story.ended(), story.job.ending.succeeded, story.incidents) == (
        True,
        True,
        [],
    )


def test_a_job_without_storage_that_ends_well_ends_at_once() -> None:
    story = NextStory()
    story.run()
    story.train(1)
    _finish(story)
    assert (story.ended(), story.job.ending.succeeded) == (True, True)


def test_a_job_that_is_begun_again_while_its_last_step_is_stored_does_not_end_with_it() -> None:
    story = NextStory()
    story.storage = STORAGE
    story.run()
    story.train(1, 2)
    for node in ("n0", "n1"):
        story.leave(node)
        story.sequence += 1
    assert story.job.state is JobState.CLOSING
    for node in ("n0", "n1"):
        assert not _of(actions.EndJob, story.join(node))
    late = story.tell(events.FinalSaveEnded("j", 1, "its last step, 2, is in storage"))
    assert not _of(actions.EndJob, late)
    assert "goes on from what is left of the job that was cancelled" in story.job.lineage.begun
    assert story.job.generation.number == 2
    assert (
        "continues after step 2 of the job that was cancelled"
        in story.chosen(2).generation.start_reason
    )
