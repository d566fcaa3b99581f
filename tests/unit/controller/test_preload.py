"""What ranks load reaches the spares of their job, once, and nothing else does."""

from dataclasses import dataclass, field

from everstep_common.lessons import Lesson
from everstep_controller.api.fleet.to_agent import DirectedJob, spare_lesson
from everstep_controller.api.fleet.vault_reports import changed, vault_report
from everstep_controller.core.model.job import JobRecord, JobState, Launcher
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.vault.messages import NodeHoldings
from everstep_controller.runtime.vault_service import ImportLessons
from everstep_proto.generated import fleet_pb2
from unit.controller.test_vault_service import World

_LESSON = Lesson(("torch", "torch.nn.parallel"), {"OMP_NUM_THREADS": "1"})
_OTHER = Lesson(("jax",))


@dataclass
class Nodes:
    """Nodes that are there or not, and what they were told."""

    away: set[str] = field(default_factory=set)
    told: list[tuple[str, str, Lesson]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lessons = ImportLessons(self._send)

    def _send(self, node: str, job: str, lesson: Lesson) -> bool:
        if node not in self.away:
            self.told.append((node, job, lesson))
        return node not in self.away

    def news(self) -> list[tuple[str, str, Lesson]]:
        news, self.told = self.told, []
        return news


def test_each_spare_is_told_once_and_again_when_there_is_another() -> None:
    nodes = Nodes()
    nodes.lessons.send_to_spares("j", ["c"])
    nodes.lessons.heard("j", _LESSON)
    nodes.lessons.send_to_spares("j", ["c", "d"])
    assert nodes.news() == [("c", "j", _LESSON), ("d", "j", _LESSON)]
    nodes.lessons.heard("j", _LESSON)
    nodes.lessons.heard("j", None)
    nodes.lessons.send_to_spares("j", ["c", "d"])
    assert nodes.news() == []
    nodes.lessons.heard("j", _OTHER)
    nodes.lessons.send_to_spares("j", ["c"])
    assert nodes.news() == [("c", "j", _OTHER)]


def test_who_was_away_or_comes_back_is_told() -> None:
    nodes = Nodes(away={"c"})
    nodes.lessons.heard("j", _LESSON)
    nodes.lessons.send_to_spares("j", ["c", "d"])
    nodes.away.clear()
    nodes.news()
    nodes.lessons.send_to_spares("j", ["c", "d"])
    assert nodes.news() == [("c", "j", _LESSON)]
    nodes.lessons.connected("d")
    nodes.lessons.send_to_spares("j", ["c", "d"])
    assert nodes.news() == [("d", "j", _LESSON)]
    nodes.lessons.send_to_spares("j", ["d"])
    nodes.lessons.send_to_spares("j", ["c", "d"])
    assert nodes.news() == [("c", "j", _LESSON)]


def test_a_job_that_is_over_teaches_nobody() -> None:
    nodes = Nodes()
    nodes.lessons.heard("j", _LESSON)
    nodes.lessons.forget("j")
    nodes.lessons.send_to_spares("j", ["c"])
    assert nodes.news() == []


def _wire(*modules: str, **variables: str) -> fleet_pb2.VaultReport:
    lesson = fleet_pb2.Lesson(modules=modules, variables=variables)
    return fleet_pb2.VaultReport(job="j", lesson=lesson)


def test_a_lesson_goes_from_one_message_into_the_other() -> None:
    wire = _wire(*_LESSON.modules, **_LESSON.variables)
    assert vault_report("a", wire, {}).lesson == _LESSON
    assert changed("a", wire, {}).lesson == _LESSON
    told = spare_lesson(DirectedJob("j", "j-4", "j-1", b""), _LESSON, 7).spare_lesson
    assert (told.job, told.job_id, told.lineage_id, told.term) == ("j", "j-4", "j-1", 7)
    assert Lesson(tuple(told.lesson.modules), dict(told.lesson.variables)) == _LESSON


def test_what_is_no_lesson_is_as_if_it_had_not_been_told_and_the_rest_counts() -> None:
    for wire in (_wire("os; rm"), _wire("a", LD_PRELOAD="x.so"), _wire(*["a" * 200] * 400)):
        assert vault_report("a", wire, {}).lesson is None
    assert vault_report("a", fleet_pb2.VaultReport(job="j"), {}).lesson is None


@dataclass
class Taught(World):
    """A world that keeps who was taught."""

    taught: list[tuple[str, str, Lesson]] = field(default_factory=list)

    def teach(self, node: str, job: str, lesson: Lesson) -> bool:
        self.taught.append((node, job, lesson))
        return True

    @property
    def job(self) -> JobRecord:
        return self.state.newest("train")


def test_members_are_not_told_spares_are_and_without_any_snapshot() -> None:
    world = Taught()
    world.state.nodes["c"] = NodeRecord("c", NodeState.HEALTHY, connected=True)
    world.job.launchers = {name: Launcher(1, 0) for name in ("a", "b", "c")}
    world.service.report("train", "a", NodeHoldings({}, 0, lesson=_LESSON))
    world.service.job_changed("train")
    world.settle()
    assert world.taught == [("c", "train-1", _LESSON)]
    world.job.state = JobState.REPLANNING
    world.service.job_changed("train")
    world.settle()
    world.job.state = JobState.RUNNING
    world.service.job_changed("train")
    world.settle()
    assert len(world.taught) == 1
