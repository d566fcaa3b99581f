"""Which steps are brought to storage, by whom they are published, and what is kept."""

from dataclasses import dataclass, field, replace

import pytest

from everstep_common.orders import Publish
from everstep_common.reports import Storage, StoredStep
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Tier
from everstep_controller.core.vault.persistence import (
    Persistence,
    PersistenceInput,
    choose_stand_ins,
    first_stored_ns,
    lacks_own,
)
from unit.core.vault.vault_story import NODES, S, copy, job, ring, stored

EVERY_10 = Storage("/ckpt", every_steps=10)


@dataclass
class Story:
    """A job with storage, and what its planner says as things go on."""

    storage: Storage = EVERY_10
    planner: Persistence = field(default_factory=Persistence)
    catalogue: Catalogue = field(default_factory=lambda: ring(()))
    now_s: float = 0.0
    connected: tuple[str, ...] = NODES
    job: JobRecord = field(init=False)
    recoverable: int | None = None

    def __post_init__(self) -> None:
        self.job = job(storage=self.storage)

    def inputs(self) -> PersistenceInput:
        generation = self.job.generation.number
        return PersistenceInput(
            self.job,
            generation,
            3,
            self.catalogue,
            self.recoverable,
            self.connected,
            int(self.now_s * S),
        )

    def look(self, recoverable: int | None = None, after_s: float = 1.0) -> Publish | None:
        self.now_s += after_s
        if recoverable is not None:
            self.recoverable = recoverable
        self._hold()
        return self.planner.decide(self.inputs())

    def _hold(self) -> None:
        """Have all ranks hold their own copies of the steps that matter, whatever is written."""
        number = self.job.generation.number
        steps = {self.recoverable, *(self.planner.named if self.planner.generation else ())}
        for rank, node in enumerate(NODES) if steps != {None} else ():
            held = [c for c in self.catalogue.held(node).values() if c.tier is Tier.DISK]
            own = [copy(node, rank, n, generation=number) for n in steps if n is not None]
            self.catalogue.replace(node, [*held, *own], self.catalogue.settled(node))

    def write(self, *steps: int, whole: tuple[StoredStep, ...] = ()) -> None:
        """Have all files of some steps reported, and some steps as whole in storage."""
        self.catalogue = ring([], files=steps)
        for node in NODES:
            self.catalogue.record_stored(node, whole)


def test_a_job_without_storage_is_not_brought_anywhere() -> None:
    story = Story()
    story.job.spec = replace(story.job.spec, storage=None)
    assert story.look(50) is None
    assert story.planner.named == []


def test_the_first_recoverable_step_past_a_multiple_is_named_and_only_one_at_a_time() -> None:
    story = Story()
    story.look(9)
    assert story.planner.named == []
    story.look(11)
    assert story.planner.named == [11]
    story.look(25)
    assert story.planner.named == [11]
    story.write(11, whole=(stored(11),))
    story.look(26)
    assert story.planner.named == [26]


def test_a_step_is_named_by_time() -> None:
    story = Story(Storage("/ckpt", every_ns=60 * S))
    story.write(whole=(stored(1),))
    story.look(5)
    story.look(6, after_s=59)
    assert story.planner.named == []
    story.look(7, after_s=2)
    assert story.planner.named == [7]


def _named_after_s(story: Story, most_s: float) -> float:
    """Let the job make a step a second until one is named; return after how long that was."""
    began_s = story.now_s
    while story.now_s - began_s < most_s:
        story.look((story.recoverable or 0) + 1)
        if story.planner.named:
            break
    return story.now_s - began_s


def _store_named(story: Story) -> None:
    (step,) = story.planner.named
    story.write(step, whole=(stored(step),))
    story.look()


def test_the_first_step_is_stored_early_and_each_wait_is_twice_as_long() -> None:
    story = Story(Storage("/ckpt", every_ns=600 * S))
    early_s = first_stored_ns(story.job) / S
    assert 22 < early_s < 45
    story.look(1)
    waits = []
    for _ in range(7):
        waits.append(_named_after_s(story, 700))
        _store_named(story)
    wanted = [early_s * 2**number for number in range(5)] + [600, 600]
    assert waits == pytest.approx([min(one, 600) for one in wanted], abs=3)


def test_nothing_to_store_is_not_waited_away() -> None:
    """Imports take minutes: the early step is counted from what there is to lose."""
    story = Story(Storage("/ckpt", every_ns=600 * S))
    story.look()
    story.look(after_s=300)
    story.look(1)
    assert story.planner.named == []
    assert _named_after_s(story, 100) == pytest.approx(first_stored_ns(story.job) / S, abs=3)


def test_a_job_that_goes_on_from_storage_has_time() -> None:
    story = Story(Storage("/ckpt", every_ns=600 * S))
    story.write(whole=(stored(5),))
    story.look(6)
    assert _named_after_s(story, 900) == pytest.approx(600, abs=3)


def test_a_job_that_was_restored_before_anything_was_stored_stores_early_as_well() -> None:
    """Its second fault may take the memory: nothing of it is anywhere else yet."""
    story = Story(Storage("/ckpt", every_ns=600 * S))
    story.look(1)
    story.look(10, after_s=15)
    story.job.generation.number, story.job.lineage.restored = 2, (1, 10)
    story.job.lineage.branch = [BranchPoint(1, 10, 3), BranchPoint(2, None, 3)]
    story.look(10)
    assert _named_after_s(story, 100) == pytest.approx(first_stored_ns(story.job) / S, abs=3)


def test_jobs_that_begin_together_do_not_store_together() -> None:
    story = Story()
    waits_s = set()
    for number in range(100):
        story.job.id = f"llm-{number}"
        waits_s.add(round(first_stored_ns(story.job) / S))
    assert len(waits_s) > 12


def test_every_generation_begins_with_a_fence_before_anything_is_published() -> None:
    story = Story()
    assert story.look(3) == Publish(1, None, (), ())
    story.write(whole=(stored(3),))
    story.job.generation.number = 2
    story.job.lineage.branch = [BranchPoint(1, 5, 3), BranchPoint(2, None, 3)]
    assert story.look(3) == Publish(2, stored(3), (), (stored(3),))


def test_a_step_is_published_with_all_its_files_when_every_rank_has_written_one() -> None:
    story = Story()
    story.look(11)
    story.write(11)
    publish = story.look()
    assert publish is not None
    assert publish.target == StoredStep(1, 11, 3, "", 24)
    assert [file.rank for file in publish.files] == [0, 1, 2]
    assert publish.files[1].root_hash == "1011"
    story.write(11, whole=(stored(11),))
    assert story.look() == Publish(1, stored(11), (), (stored(11),))


def test_a_step_of_which_a_file_is_missing_is_not_published() -> None:
    story = Story()
    story.look(11)
    story.write(11)
    story.catalogue.forget("b")
    assert story.look() == Publish(1, None, (), ())


def test_a_file_of_each_part_is_enough_where_ranks_have_equal_ones() -> None:
    story = Story()
    story.job.lineage.branch = [BranchPoint(1, None, 3, ("part-0",))]
    story.look(11)
    story.catalogue = Catalogue()
    equal = [copy("a", 1, 11, disk=True)._replace(layout="part-0", replica=False)]
    story.catalogue.replace("a", equal, 1)
    for node in NODES:
        story.catalogue.record_stored(node, ())
    publish = story.look()
    assert publish is not None
    assert publish.target == StoredStep(1, 11, 3, "", 8)
    assert [file.rank for file in publish.files] == [1]


def test_one_publisher_stays_until_it_is_away_and_must_know_what_is_in_storage() -> None:
    story = Story()
    story.catalogue = Catalogue()
    assert story.look(3) is None
    story.catalogue.record_stored("b", ())
    assert story.look(3) == Publish(1, None, (), ())
    assert story.planner.publisher == "b"
    story.catalogue.record_stored("a", ())
    story.look(3)
    assert story.planner.publisher == "b"
    story.connected = ("a", "c")
    story.look(3)
    assert story.planner.publisher == "a"


def test_what_is_kept_are_the_newest_of_the_branch_what_was_restored_and_what_is_underway() -> None:
    story = Story(Storage("/ckpt", every_steps=10, keep=2))
    story.job.lineage.restored = (1, 10)
    story.write(40, whole=tuple(stored(step) for step in (10, 20, 30)))
    publish = story.look(55)
    assert story.planner.named == [55]
    assert publish is not None
    assert [step.step for step in publish.keep] == [55, 40, 30, 20, 10]
    assert publish.target == StoredStep(1, 40, 3, "", 24)


def test_what_a_recovery_has_cut_off_is_neither_target_nor_kept() -> None:
    story = Story()
    story.job.lineage.branch = [BranchPoint(1, 20, 3), BranchPoint(2, None, 3)]
    story.write(whole=(stored(10), stored(20), stored(30)))
    publish = story.look()
    assert publish is not None
    assert publish.target == stored(20)
    assert stored(30) not in publish.keep


def test_nothing_is_removed_on_the_word_of_who_sees_nothing() -> None:
    publish = Story().look(5)
    assert publish is not None
    assert publish.keep == ()


def test_nothing_is_removed_while_a_member_is_still_to_be_heard() -> None:
    story = Story()
    story.write(40, whole=(stored(10), stored(20), stored(30)))
    told = story.look()
    story.catalogue.forget(NODES[-1])
    unheard = story.look()
    assert told is not None
    assert unheard is not None
    assert told.keep
    assert unheard.keep == ()


def test_a_step_that_is_half_written_when_its_generation_ends_is_kept_and_published() -> None:
    story = Story()
    story.write(whole=(stored(10),))
    story.look(21)
    assert story.planner.named == [21]
    story.job.generation.number, story.recoverable = 2, None
    story.job.lineage.branch = [BranchPoint(1, 21, 3), BranchPoint(2, None, 3)]
    fence = story.look()
    assert fence is not None
    assert [step.key for step in fence.keep] == [(1, 21), (1, 10)]
    story.write(21, whole=(stored(10),))
    publish = story.look()
    assert publish is not None
    assert publish.target == StoredStep(1, 21, 3, "", 24)
    story.write(21, whole=(stored(10), stored(21)))
    story.look()
    assert story.planner.underway == set()


def test_a_controller_that_starts_again_keeps_what_is_written_in_part() -> None:
    story = Story()
    story.job.generation.number = 2
    story.job.lineage.branch = [BranchPoint(1, 21, 3), BranchPoint(2, None, 3)]
    story.write(21, whole=(stored(10),))
    # Nothing of it is heard from one member, which has told what it sees in storage.
    story.catalogue.replace("c", (), 1)
    fence = story.look()
    assert fence is not None
    assert fence.target == stored(10)
    assert [step.key for step in fence.keep] == [(1, 21), (1, 10)]


def test_what_was_under_way_on_a_branch_that_is_cut_off_is_not_kept() -> None:
    story = Story()
    story.write(whole=(stored(10),))
    story.look(21)
    story.job.generation.number, story.recoverable = 2, None
    story.job.lineage.branch = [BranchPoint(1, 20, 3), BranchPoint(2, None, 3)]
    fence = story.look()
    assert fence is not None
    assert [step.key for step in fence.keep] == [(1, 10)]


def test_a_failure_gives_way_to_the_next_step_and_is_never_published() -> None:
    story = Story()
    story.look(11)
    story.planner.failures[1, 11] = "disk full"
    story.write(11)
    publish = story.look(12)
    assert publish is not None
    assert (publish.target, story.planner.named) == (None, [])
    story.look(21)
    assert story.planner.named == [21]


def test_the_newest_recoverable_step_is_named_when_a_generation_stops() -> None:
    story = Story()
    story.look(4)
    story.job.state = JobState.STOPPING
    story.look(4)
    assert story.planner.named == [4]
    assert story.planner.last_step_settled(story.inputs()) == ""
    story.write(whole=(stored(4),))
    story.look()
    assert (
        story.planner.last_step_settled(story.inputs())
        == "its last recoverable step, 4, is in storage"
    )


def test_a_job_that_is_done_has_its_last_step_named_once_every_node_knows_which_that_is() -> None:
    story = Story()
    story.look(4)
    story.job.ending.done, story.job.state = True, JobState.CLOSING
    story.look(4)
    assert story.planner.named == [4]
    story.write(whole=(stored(4),))
    story.look()
    # One node may still verify a newer one.
    story.catalogue.forget("c")
    assert story.planner.last_step_settled(story.inputs()) == ""
    story.catalogue.replace("c", (), 1)
    assert (
        story.planner.last_step_settled(story.inputs())
        == "its last recoverable step, 4, is in storage"
    )


def test_a_breakpoint_that_cannot_be_written_ends_the_wait_with_the_reason() -> None:
    story = Story()
    story.job.state = JobState.STOPPING
    story.look(4)
    story.planner.failures[1, 4] = "disk full"
    story.look()
    sentence = story.planner.last_step_settled(story.inputs())
    assert sentence == "step 4 could not be brought to storage: disk full"


def test_replicas_stand_in_for_ranks_whose_node_is_away() -> None:
    story = Story(catalogue=ring([4]))
    assert choose_stand_ins(story.inputs(), [4]) == {}
    story.connected = ("b", "c")
    assert choose_stand_ins(story.inputs(), [4]) == {"b": (0,)}
    story.catalogue = ring([4], files=[4])
    assert choose_stand_ins(story.inputs(), [4]) == {}


def test_replicas_stand_in_for_ranks_whose_agent_has_lost_its_memory() -> None:
    story = Story(catalogue=ring([4]))
    assert not lacks_own(story.inputs(), [4])
    story.catalogue.replace("a", (), 1)
    assert lacks_own(story.inputs(), [4])
    assert choose_stand_ins(story.inputs(), [4]) == {"b": (0,)}
    # The others have written theirs, and freed them.
    written = [copy("b", 0, 4), copy("b", 1, 4, disk=True)]
    story.catalogue.replace("b", written, 1)
    story.catalogue.replace("c", [copy("c", 2, 4, disk=True)], 1)
    assert lacks_own(story.inputs(), [4])
    story.catalogue.replace("b", [*written, copy("b", 0, 4, disk=True)], 1)
    assert not lacks_own(story.inputs(), [4])


def test_a_step_of_which_a_part_was_lost_before_it_was_written_gives_way_to_the_next() -> None:
    story = Story(Storage("/ckpt", every_ns=600 * S))
    story.write(whole=(stored(1),))
    story.look(5)
    story.look(7, after_s=601)
    assert story.planner.named == [7]
    # The agent of b has lost its memory, and the replica has been freed: nobody can write rank 1.
    story.catalogue.replace("a", [copy("a", 0, 7, disk=True)], 1)
    story.catalogue.replace("b", (), 1)
    story.planner.decide(replace(story.inputs(), recoverable=None))
    assert story.planner.named == []
    story.look(9)
    assert story.planner.named == [9], "it does not wait for another ten minutes"


def test_a_wait_for_what_nobody_holds_any_more_is_over_at_once() -> None:
    story = Story(catalogue=ring([]))
    story.job.state = JobState.STOPPING
    story.look()
    assert story.planner.last_step_settled(story.inputs()) == "no step is held as a whole any more"
    story.catalogue = Catalogue()
    assert story.planner.last_step_settled(story.inputs()) == ""


def test_steps_that_were_written_are_published_in_their_order() -> None:
    story = Story()
    story.look(11)
    story.write(11, 30, 39)
    publish = story.look()
    assert publish is not None
    assert (publish.target, len(publish.files)) == (StoredStep(1, 11, 3, "", 24), 3)
    story.write(11, 30, 39, whole=(stored(11), stored(30)))
    publish = story.look()
    assert publish is not None
    assert publish.target == StoredStep(1, 39, 3, "", 24)


def test_a_step_that_a_newer_one_overtook_in_storage_is_neither_written_nor_kept() -> None:
    story = Story()
    story.job.state = JobState.CLOSING
    story.look(30)
    story.look(35)
    story.look(39)
    assert story.planner.named == [30, 35, 39]
    story.write(30, 39, whole=(stored(30),))
    publish = story.look(39)
    assert publish is not None
    assert [step.step for step in publish.keep] == [39, 35, 30]
    story.write(30, 39, whole=(stored(30), stored(39)))
    publish = story.look(39)
    assert publish is not None
    assert story.planner.named == []
    assert [step.step for step in publish.keep] == [39, 30]
    assert story.planner.last_step_settled(story.inputs())
