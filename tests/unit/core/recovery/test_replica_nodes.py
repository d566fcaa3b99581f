"""A copy of the model on several nodes: a job runs on whole copies, and no node of half a one."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_common.reports import Phase
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.recovery.placement import Candidate, Placement, place_nodes
from unit.core.test_decisions import Story, launcher_joined

_NODES = ("n0", "n1", "n2", "n3")


def _place(members: Sequence[str], able: Sequence[str], most: int, replica: int) -> Placement:
    return place_nodes(members, {}, [Candidate(name, "", 0) for name in able], most, replica)


def test_the_other_nodes_of_a_broken_copy_wait_and_whole_ones_stay_together() -> None:
    able = ["n0", "n1", "n2", "n4", "n5"]
    assert _place(["n0", "n1", "n2", "n3", "n4", "n5"], able, 6, 2).places == [
        "n0",
        "n1",
        "n4",
        "n5",
    ]


def test_what_is_left_of_two_broken_copies_makes_a_whole_one_in_place_of_the_first() -> None:
    able = ["n1", "n2", "n4", "n5"]
    assert _place(["n0", "n1", "n2", "n3", "n4", "n5"], able, 6, 2).places == [
        "n1",
        "n2",
        "n4",
        "n5",
    ]


def test_a_spare_makes_a_broken_copy_whole_where_it_was() -> None:
    able = ["n0", "n1", "n2", "n7"]
    assert _place(["n0", "n1", "n2", "n3"], able, 4, 2).places == ["n0", "n1", "n2", "n7"]


@settings(max_examples=300, deadline=None)
@given(
    members=st.integers(0, 4),
    replica=st.integers(1, 3),
    able=st.sets(st.sampled_from([f"n{number}" for number in range(16)])),
)
def test_no_half_of_a_copy_is_seated_and_no_whole_one_is_left_out(
    members: int, replica: int, able: set[str]
) -> None:
    names = [f"n{number}" for number in range(members * replica)]
    most = 4 * replica
    places = _place(names, sorted(able), most, replica).places
    assert len(set(places)) == len(places) == min(most, len(able) // replica * replica)
    assert set(places) <= able
    whole = [names[at : at + replica] for at in range(0, len(names), replica)]
    for one in whole:
        if set(one) <= able:
            assert set(one) <= set(places)


class _Story(Story):
    """A job of four nodes, two for each copy of its model, that may re-form."""

    def join(
        self, node: str, *, token: str = "t", uid: int = 1, program: str = "train"
    ) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                self.origin(node),
                0,
                launcher_joined(
                    uid=uid,
                    token_sha256=token,
                    nodes_max=4,
                    reform=True,
                    restarts_max=9,
                    replica_nodes=2,
                    program=program,
                ),
                "j",
            )
        )

    def train(self, step: int) -> None:
        """Let all ranks of the generation start, and make a step that is safe."""
        job = self.core.state.newest("j")
        for phase in Phase:
            for node in job.generation.members:
                origin = self.origin(node)
                self.tell(
                    events.Reported(
                        origin, self.now_ns, reports.PhaseReached(job.generation.number, phase), "j"
                    )
                )
        self.tell(
            events.JobProgressed(
                job="j", generation=job.generation.number, first_step=step, end_ns=(self.now_ns,),
                stall_ns=(0,), recoverable_step=step,
            )
        )  # fmt: skip

    def stopped(self, *nodes: str) -> None:
        generation = self.core.state.newest("j").generation.number
        for node in nodes:
            self.tell(
                events.Reported(
                    self.origin(node), self.now_ns, reports.GenerationStopped(generation, 1234), "j"
                )
            )


def _running() -> _Story:
    story = _Story(nodes=4, settings=Settings(mode=Mode.ENFORCE))
    for node in _NODES:
        story.join(node)
    story.choose(None)
    story.train(1)
    return story


def test_a_job_goes_on_without_the_copy_that_lost_a_node_and_grows_by_a_whole_one() -> None:
    story = _running()
    job = story.core.state.newest("j")
    assert job.generation.members == list(_NODES)
    story.tell(events.OperatorIsolated("n1", "ops", "fan"))
    story.stopped(*_NODES)
    story.choose(1)
    assert job.generation.members == ["n2", "n3"]
    story.train(2)
    # n0 alone is half a copy.
    assert f"growth/{job.id}" not in story.core.state.timers
    for action in story.tell(events.OperatorReleased("n1", "ops", "")):
        if isinstance(action, actions.RunCheck):
            story.tell(
                events.Reported(
                    story.origin("n1"), 0, reports.CheckFinished(action.id, True, "good")
                )
            )
    assert f"growth/{job.id}" in story.core.state.timers


def test_with_half_a_copy_left_the_job_waits() -> None:
    story = _running()
    for node in ("n0", "n2", "n3"):
        story.tell(events.OperatorIsolated(node, "ops", "fan"))
    story.stopped(*_NODES)
    job = story.core.state.newest("j")
    assert job.state is JobState.WAITING_CAPACITY
    assert "it needs 2" in job.reason


def test_a_launcher_with_another_program_is_refused_and_told_what_runs() -> None:
    story = _running()
    refused = [
        action
        for action in story.join("n0", program="evaluate")
        if isinstance(action, actions.RefuseLauncher)
    ]
    assert [action.reason for action in refused] == [
        "job j runs train, and this is evaluate: choose another --job name for another job"
    ]
