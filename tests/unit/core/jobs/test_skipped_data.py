"""Data that a job leaves out is left out by the next job of its name too."""

from everstep_common import reports
from everstep_common.orders import Publish
from everstep_common.reports import DataRange, StoredStep
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.journal.codec import decode_event, decode_state, encode
from unit.core.jobs.test_continuation import NextStory
from unit.core.jobs.test_job_endings import STORAGE
from unit.core.test_decisions import launcher_joined
from unit.core.vault.test_persistence import Story
from unit.core.vault.vault_story import stored

LEFT_OUT = StoredStep(4, 40, 2, "aa", 8, skipped=(DataRange(3, 4), DataRange(9, 9)))


class LeavingOut(NextStory):
    """A job that has left out data, and the next one."""

    def spoil(self, step: int, skip: DataRange) -> None:
        self.tell(
            events.Reported(
                self.origin("n0"),
                self.now_ns,
                reports.RollbackAsked(
                    generation=self.job.generation.number,
                    rank=0,
                    step=step,
                    reason="the loss is nan",
                    skip=skip,
                ),
                "j",
            )
        )

    def left(self) -> None:
        """Train, leave data out, and have the user end it."""
        self.run()
        self.train(1, 2)
        self.spoil(2, DataRange(2, 3))
        self.stop_all()
        self.restore(1, 1)
        for node in ("n0", "n1"):
            self.leave(node)
            self.sequence += 1
        self.stop_all()
        assert self.ended()

    def begun(self, *, fresh: bool = False) -> None:
        for node in ("n0", "n1"):
            self.join(node, fresh=fresh)


def _left_out(story: LeavingOut) -> list[tuple[DataRange, ...]]:
    orders = [one for one in story.core.due(0) if isinstance(one, actions.StartGeneration)]
    return [order.skipped for order in orders]


def test_what_goes_on_from_kept_memory_leaves_it_out_and_says_so() -> None:
    story = LeavingOut()
    story.left()
    story.begun()
    job = story.chosen(1)
    assert _left_out(story) == [(DataRange(2, 3),)] * 2
    assert "from memory of n0, n1 without data 2 to 3; use --fresh" in job.generation.start_reason


def test_what_begins_anew_leaves_nothing_out() -> None:
    story = LeavingOut()
    story.left()
    story.begun(fresh=True)
    story.chosen(None)
    assert _left_out(story) == [()] * 2


def test_where_nothing_is_left_of_the_job_nothing_is_left_out() -> None:
    story = LeavingOut()
    story.left()
    story.begun()
    job = story.chosen(None, lost="no copy of rank 0 can be reached")
    assert "nothing is left of the job" in job.generation.start_reason
    assert _left_out(story) == [()] * 2


def test_another_users_job_leaves_nothing_out() -> None:
    story = LeavingOut()
    story.left()
    for node in ("n0", "n1"):
        story.join(node, uid=2)
    story.chosen(None)
    assert _left_out(story) == [()] * 2


def test_what_goes_on_from_storage_alone_leaves_out_what_its_manifest_says() -> None:
    story = LeavingOut()
    story.storage, story.latest = STORAGE, LEFT_OUT
    story.begun()
    job = story.chosen(40, tier="shared storage")
    assert _left_out(story) == [(DataRange(3, 4), DataRange(9, 9))] * 2
    assert "continues after step 40 without data 3 to 4, 9:" in job.generation.start_reason


def test_a_newer_generation_in_storage_brings_what_it_left_out() -> None:
    story = LeavingOut()
    story.left()
    story.storage, story.latest = STORAGE, LEFT_OUT
    story.begun()
    assert story.job.lineage.branch == [BranchPoint(4, 40, 2)]
    story.chosen(40, tier="shared storage")
    assert _left_out(story) == [(DataRange(3, 4), DataRange(9, 9))] * 2


def test_storage_of_the_same_branch_knows_no_more_than_the_job() -> None:
    story = LeavingOut()
    story.left()
    story.storage, story.latest = STORAGE, StoredStep(1, 1, 2, "aa", 8)
    story.begun()
    story.chosen(1)
    assert _left_out(story) == [(DataRange(2, 3),)] * 2


def test_a_controller_that_has_forgotten_a_running_job_hears_what_it_leaves_out() -> None:
    story = LeavingOut()
    joined = events.Reported(
        story.origin("n0"),
        0,
        launcher_joined(
            nodes_min=1,
            nodes_max=1,
            restarts_max=9,
            free_port=1,
            running_generation=7,
            skipped=(DataRange(2, 3),),
        ),
        "j",
    )
    story.tell(joined)
    assert story.job.lineage.skipped == [DataRange(2, 3)]


def test_it_is_kept_over_a_restart_of_the_controller() -> None:
    story = LeavingOut()
    story.left()
    assert decode_state(encode(story.core.state)).newest("j").lineage.skipped == [DataRange(2, 3)]


def test_journals_without_it_are_still_read() -> None:
    body = (
        b'{"origin":{"node":"n","outbox":"o","sequence":1},"at_ns":0,"job":"j","report":{"uid":1,'
        b'"token_sha256":"t","nodes_min":1,"nodes_max":1,"processes_per_node":1,"reform":false,'
        b'"restarts_max":1,"free_port":1,"latest":{"generation":4,"step":40,"world_size":2,'
        b'"manifest_hash":"aa","size_bytes":8}}}'
    )
    event = decode_event("LauncherJoined", body)
    assert isinstance(event, events.Reported)
    assert isinstance(event.report, reports.LauncherJoined)
    assert event.report.latest == StoredStep(4, 40, 2, "aa", 8)


def test_it_is_written_with_a_manifest_and_makes_no_new_order_afterwards() -> None:
    story = Story()
    story.job.lineage.skipped = [DataRange(2, 3)]
    story.look(11)
    story.write(11)
    publish = story.look()
    assert publish is not None
    assert publish.files
    assert publish.skipped == (DataRange(2, 3),)
    story.write(11, whole=(stored(11),))
    done = story.look()
    story.job.lineage.skipped = [DataRange(2, 9)]
    assert story.look() == done == Publish(1, stored(11), (), (stored(11),))
    assert story.job.state is JobState.RUNNING
