"""States that a job crashes from again and again, and how a job with storage ends."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.orders import ShardSource
from everstep_common.reports import Storage, StoredStep
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.snapshots import BranchPoint
from unit.core.test_decisions import Story, launcher_joined

STORAGE = Storage("/ckpt", every_steps=10)
LATEST = StoredStep(4, 40, 2, "aa", 8)


class LongStory(Story):
    """A job of two nodes that crashes, goes back, and ends."""

    storage: Storage | None = None
    latest: StoredStep | None = None

    def join(self, node: str, *, token: str = "t", uid: int = 1) -> list[actions.Action]:
        joined = events.Reported(
            self.origin(node),
            0,
            launcher_joined(
                uid=uid,
                token_sha256=token,
                restarts_max=9,
                storage=self.storage,
                latest=self.latest,
            ),
            "j",
        )
        return self.tell(joined)

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def ended(self) -> bool:
        return self.job.state is JobState.ENDED

    def train(self, *steps: int) -> None:
        for step in steps:
            self.progress(step)
        self.job.lineage.recoverable_step = steps[-1]

    def restore(self, generation: int, step: int) -> list[actions.Action]:
        """Answer with a step of a generation that some node holds."""
        source = ShardSource("n0", "n0:1", generation, 0, step, "aa", 8)
        return self.tell(
            events.RecoveryStepChosen(
                job="j",
                generation=self.job.generation.number,
                step=step,
                sources=(source,),
                step_generation=generation,
            )
        )

    def crash(self) -> actions.ChooseRecoveryStep:
        """Let a process die and all be stopped; return the question that follows."""
        self.exit_rank("n0")
        return next(a for a in self.stop_all() if isinstance(a, actions.ChooseRecoveryStep))

    def leave(self, node: str) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                Origin(node, f"{node}-box", self.sequence + 1),
                0,
                reports.LauncherLeft("", True),
                "j",
            )
        )


def test_the_second_crash_soon_after_restoring_a_state_speaks_against_it() -> None:
    story = LongStory()
    story.run()
    story.train(1, 2, 3)
    assert story.crash().avoided == ()
    story.restore(1, 3)
    story.train(4, 5)
    assert story.crash().avoided == ()
    story.restore(1, 3)
    story.train(4)
    assert story.crash().avoided == ((1, 3),)


def test_a_crash_long_after_restoring_says_nothing_about_the_state() -> None:
    story = LongStory()
    story.run()
    story.train(1, 2, 3)
    story.crash()
    for _ in range(3):
        story.restore(1, 3)
        story.train(*range(4, 14))
        assert story.crash().avoided == ()


def test_what_a_node_or_an_operator_broke_says_nothing_about_the_state() -> None:
    story = LongStory()
    story.run()
    story.train(1, 2, 3)
    for _ in range(3):
        story.tell(events.OperatorIsolated("n0", "ops", "fan"))
        story.stop_all()
        story.tell(events.OperatorReleased("n0", "ops", "done"))
        for check in [a for a in story.core.due(0) if isinstance(a, actions.RunCheck)]:
            story.tell(
                events.Reported(
                    story.origin("n0"), 0, reports.CheckFinished(check.id, True, "good")
                )
            )
        story.tell(events.TimerDue(f"retry/{story.job.id}"))
        assert story.job.state is JobState.REPLANNING
        story.restore(1, 3)
    assert story.job.lineage.crashed_from == []


def test_a_process_that_dies_with_its_node_is_the_nodes_fault() -> None:
    story = LongStory(nodes=3)
    story.run()
    story.train(1)
    story.join("n2")
    story.crash()
    story.restore(1, 1)
    story.exit_rank("n0")
    story.find("n0")
    story.stop_all()
    assert story.job.lineage.crashed_from == []


def test_a_state_that_a_recovery_cut_off_is_forgotten() -> None:
    story = LongStory()
    story.run()
    story.train(1, 2, 3)
    story.crash()
    story.restore(1, 3)
    story.crash()
    story.restore(1, 3)
    assert story.crash().avoided == ((1, 3),)
    story.restore(1, 2)
    story.train(3)
    assert story.crash().avoided == ()


def test_replay_avoids_the_same_states() -> None:
    story = LongStory()
    story.run()
    story.train(1)
    story.crash()
    story.restore(1, 1)
    story.crash()
    story.restore(1, 1)
    question = story.crash()
    due = [a for a in story.core.due(0) if isinstance(a, actions.ChooseRecoveryStep)]
    assert due == [question]
    assert question.avoided == ((1, 1),)


def test_a_new_job_goes_on_where_its_storage_ends() -> None:
    story = LongStory()
    story.storage, story.latest = STORAGE, LATEST
    story.join("n0")
    asked = [a for a in story.join("n1") if isinstance(a, actions.ChooseRecoveryStep)]
    assert asked[0].branch == (BranchPoint(4, 40, 2),)
    assert (asked[0].stored, asked[0].expected, asked[0].generation) == ((LATEST,), True, 5)
    started = story.tell(
        events.RecoveryStepChosen(job="j", generation=5, step=40, step_generation=4, stored=LATEST)
    )
    orders = [a for a in started if isinstance(a, actions.StartGeneration)]
    assert {(a.restore_step, a.stored) for a in orders} == {(40, LATEST)}
    assert story.job.lineage.branch == [BranchPoint(4, 40, 2), BranchPoint(5, None, 2)]


def test_the_newest_word_about_storage_counts_until_the_job_starts() -> None:
    story = LongStory(nodes=3)
    story.storage, story.latest = STORAGE, LATEST
    story.join("n0")
    story.latest = replace(LATEST, step=50)
    story.join("n1")
    story.latest = replace(LATEST, step=60)
    story.join("n2")
    assert story.job.lineage.latest == replace(LATEST, step=50)


def test_launchers_that_disagree_about_storage_are_refused() -> None:
    story = LongStory()
    story.storage = STORAGE
    story.join("n0")
    story.storage = Storage("/elsewhere")
    refused = [a for a in story.join("n1") if isinstance(a, actions.RefuseLauncher)]
    assert "--persist" in refused[0].reason


def _closing() -> LongStory:
    story = LongStory()
    story.storage = STORAGE
    story.run()
    story.train(1, 2)
    story.leave("n0")
    story.stop_all()
    return story


def test_a_job_with_storage_ends_when_its_last_step_is_there() -> None:
    story = _closing()
    assert not story.ended()
    done = story.tell(events.FinalSaveEnded("j", 1, "step 2 is in storage"))
    assert story.ended()
    assert actions.EndJob in {type(a) for a in done}


def test_a_job_with_storage_does_not_wait_for_it_for_ever() -> None:
    story = _closing()
    story.tell(events.TimerDue(f"final_save/{story.job.id}"), after_s=119)
    assert not story.ended()
    done = story.tell(events.TimerDue(f"final_save/{story.job.id}"), after_s=2)
    assert story.ended()
    said = [a.message for a in done if isinstance(a, actions.Announce)]
    assert any("not in storage after 120 s" in message for message in said)


def test_a_restarted_controller_waits_on_for_the_last_step() -> None:
    story = _closing()
    timers = [a for a in story.core.due(story.now_ns) if isinstance(a, actions.SetTimer)]
    assert f"final_save/{story.job.id}" in [timer.timer for timer in timers]
    assert not [a for a in story.core.due(story.now_ns) if isinstance(a, actions.EndJob)]


@pytest.mark.parametrize("storage", [None, STORAGE])
def test_a_job_without_storage_or_without_a_step_ends_at_once(storage: Storage | None) -> None:
    story = LongStory()
    story.storage = storage
    story.run()
    if storage is None:
        story.train(1)
    story.leave("n0")
    story.stop_all()
    assert story.ended()


def test_nothing_restarts_a_job_that_waits_for_its_end() -> None:
    story = _closing()
    ending = story.job
    story.join("n0")
    story.restore(1, 2)
    assert not story.ended()
    story.tell(events.FinalSaveEnded("j", 1, "done"))
    story.tell(events.FinalSaveEnded("j", 1, "done"), after_s=100)
    assert ending.state is JobState.ENDED
    assert ending.generation.number == 1
