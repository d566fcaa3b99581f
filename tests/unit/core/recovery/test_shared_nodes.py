"""Nodes that several jobs may use: a spare is one job's, and ranks never exceed devices."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_common.reports import Accelerator, Inventory, Phase
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.settings import Settings
from unit.core.test_decisions import Story, launcher_joined
from unit.core.test_marks import Looking

GPU = Accelerator(
    uuid="GPU-1", name="H", vendor="nvidia", pci_address="0", memory_bytes=1, driver="1"
)


class Shared(Story):
    """Jobs of two nodes each, whose launchers share nodes; looking at all changes nothing."""

    def __init__(self, nodes: int, devices: int = 0, settings: Settings | None = None) -> None:
        super().__init__(nodes=0, settings=settings)
        self.core = Looking(self.core.state)
        for index in range(nodes):
            self.connect(f"n{index}")
            # What an agent says of its node, which connect leaves out.
            inventory = Inventory(accelerators=(GPU,) * devices)
            node = self.core.state.nodes[f"n{index}"]
            node.spec = replace(node.spec, inventory=inventory)

    def start(self, job: str, *nodes: str, ranks: int = 8, most: int = 2, uid: int = 1) -> None:
        for node in nodes:
            launcher = launcher_joined(
                uid=uid, nodes_max=most, processes_per_node=ranks, restarts_max=9, free_port=1
            )
            self.tell(events.Reported(self.origin(node), 0, launcher, job))

    def job(self, name: str) -> JobRecord:
        return self.core.state.newest(name)

    def step(self, name: str) -> None:
        """Take a planned generation to its first step."""
        number = self.job(name).generation.number
        self.tell(events.RecoveryStepChosen(job=name, generation=number, step=None))
        for node in list(self.job(name).generation.members):
            for phase in Phase:
                reached = reports.PhaseReached(number, phase)
                self.tell(events.Reported(self.origin(node), self.now_ns, reached, name))
        row = events.JobProgressed(
            job=name, generation=number, first_step=0, end_ns=(self.now_ns,), stall_ns=(0,)
        )
        self.tell(row)
        assert self.job(name).state is JobState.RUNNING

    def stop(self, name: str) -> None:
        """Have all members say that nothing of the generation is left."""
        number = self.job(name).generation.number
        for node in list(self.job(name).generation.members):
            gone = reports.GenerationStopped(number, 2)
            self.tell(events.Reported(self.origin(node), self.now_ns, gone, name))

    def end(self, name: str) -> None:
        for node in list(self.job(name).launchers):
            done = reports.GenerationFinished(self.job(name).generation.number)
            self.tell(events.Reported(self.origin(node), self.now_ns, done, name))


def _two_jobs(devices: int, settings: Settings | None = None) -> Shared:
    story = Shared(5, devices, settings)
    story.start("a", "n0", "n1")
    story.start("b", "n2", "n3")
    for job in ("a", "b"):
        story.step(job)
        story.start(job, "n4")
    return story


@pytest.mark.parametrize("devices", [0, 8])
@pytest.mark.parametrize("checked_s", [0, 600])
def test_one_spare_is_one_jobs_and_the_other_waits_for_it(devices: int, checked_s: int) -> None:
    settings = Settings(mode=Mode.ENFORCE, spare_check_interval_ns=checked_s * 10**9)
    story = _two_jobs(devices, settings)
    asked = [a for a in story.core.due(0) if isinstance(a, actions.RunCheck)]
    assert bool(asked) is False or "spare-check" in asked[0].id
    story.lose("n0")
    story.lose("n2")
    for job in ("a", "b"):
        story.stop(job)
    assert story.job("a").generation.members == ["n4", "n1"]
    assert story.job("b").state is JobState.WAITING_CAPACITY
    share = "8 of 8 devices are " if devices else ""
    assert f"no room on n4 ({share}taken by a)" in story.job("b").reason
    story.step("a")
    story.end("a")
    assert story.job("a").state is JobState.ENDED
    assert sorted(story.job("b").generation.members) == ["n3", "n4"]


def test_jobs_share_a_node_as_far_as_its_devices_go() -> None:
    story = Shared(2, devices=8)
    story.start("a", "n0", "n1", ranks=4)
    story.start("b", "n0", "n1", ranks=4)
    story.start("c", "n0", "n1", ranks=1)
    members = [story.job(name).generation.members for name in ("a", "b", "c")]
    assert [len(of_job) for of_job in members] == [2, 2, 0]
    assert "no room on n0 (8 of 8 devices are taken by a and b)" in story.job("c").reason
    story.step("b")
    story.end("b")
    assert len(story.job("c").generation.members) == 2


def test_a_job_alone_on_a_node_may_have_more_ranks_than_devices() -> None:
    story = Shared(2, devices=2)
    story.start("a", "n0", "n1", ranks=8)
    assert len(story.job("a").generation.members) == 2


def test_where_no_devices_are_known_jobs_may_be_started_on_one_node() -> None:
    story = Shared(2)
    story.start("a", "n0", "n1")
    story.start("b", "n0", "n1")
    assert story.job("a").generation.members == story.job("b").generation.members


def test_nodes_of_nobody_are_taken_before_those_of_others() -> None:
    story = Shared(4)
    story.start("a", "n0", "n1")
    for node in ("n0", "n1", "n2", "n3"):
        story.start("b", node, most=4)
    story.tell(events.TimerDue(f"forming/{story.job('b').id}"), after_s=20)
    assert set(story.job("b").generation.members) >= {"n2", "n3"}


def test_a_place_in_a_job_that_waits_is_nobodys() -> None:
    story = _two_jobs(devices=8)
    story.lose("n0")
    story.lose("n4")
    story.stop("a")
    assert story.job("a").state is JobState.WAITING_CAPACITY
    story.start("b", "n1")
    story.lose("n2")
    # Of five nodes no more than half is heard: it takes people's word.
    story.tell(events.NodeDeclaredLost("n2", "ann", "no power"))
    story.stop("b")
    assert sorted(story.job("b").generation.members) == ["n1", "n3"]


@pytest.mark.parametrize(("uid", "isolated"), [(1, True), (2, False)])
def test_a_node_is_not_taken_from_another_user_for_what_a_launcher_says_of_its_ranks(
    uid: int, isolated: bool
) -> None:
    story = Shared(2, settings=Settings(mode=Mode.ENFORCE))
    story.start("theirs", "n0", "n1", uid=uid)
    story.start("ours", "n0", "n1")
    story.step("theirs")
    for step in (7, 19):
        story.step("ours")
        exited = reports.RankExited(
            generation=story.job("ours").generation.number,
            rank=0,
            exit_code=0,
            signal=1,
            last_line="",
            kind="crash",
            step=step,
        )
        story.tell(events.Reported(story.origin("n0"), story.now_ns, exited, "ours"))
        story.stop("ours")
    said = story.job("ours").recovery.judgements[-1].sentence
    assert bool(story.core.state.nodes["n0"].isolation.claims) is isolated
    assert ("job theirs of another user steps on it" in said) is not isolated
    assert (story.job("theirs").state is JobState.RUNNING) is not isolated
