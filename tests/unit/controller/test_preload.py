"""What ranks load reaches the spares of their job, once, and nothing else does."""

from dataclasses import dataclass, field

from everstep_common.preload import Preload
from everstep_controller.api.fleet.to_agent import DirectedJob, spare_preload
from everstep_controller.api.fleet.vault_reports import changed, vault_report
from everstep_controller.core.model.job import JobRecord, JobState, Launcher
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.vault.messages import NodeHoldings
from everstep_controller.runtime.vault_service import SparePreloads
from everstep_proto.generated import fleet_pb2
from unit.controller.test_vault_service import World

_PRELOAD = Preload(("torch", "torch.nn.parallel"), {"OMP_NUM_THREADS": "1"})
_OTHER = Preload(("jax",))


@dataclass
class Nodes:
    """Nodes that are there or not, and what they were told."""

    away: set[str] = field(default_factory=set)
    told: list[tuple[str, str, Preload]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.preloads = SparePreloads(self._send)

    def _send(self, node: str, job: str, preload: Preload) -> bool:
        if node not in self.away:
            self.told.append((node, job, preload))
        return node not in self.away

    def news(self) -> list[tuple[str, str, Preload]]:
        news, self.told = self.told, []
        return news


def test_each_spare_is_told_once_and_again_when_there_is_another() -> None:
    nodes = Nodes()
    nodes.preloads.send_to_spares("j", ["c"])
    nodes.preloads.heard("j", _PRELOAD)
    nodes.preloads.send_to_spares("j", ["c", "d"])
    assert nodes.news() == [("c", "j", _PRELOAD), ("d", "j", _PRELOAD)]
    nodes.preloads.heard("j", _PRELOAD)
    nodes.preloads.heard("j", None)
    nodes.preloads.send_to_spares("j", ["c", "d"])
    assert nodes.news() == []
    nodes.preloads.heard("j", _OTHER)
    nodes.preloads.send_to_spares("j", ["c"])
    assert nodes.news() == [("c", "j", _OTHER)]


def test_who_was_away_or_comes_back_is_told() -> None:
    nodes = Nodes(away={"c"})
    nodes.preloads.heard("j", _PRELOAD)
    nodes.preloads.send_to_spares("j", ["c", "d"])
    nodes.away.clear()
    nodes.news()
    nodes.preloads.send_to_spares("j", ["c", "d"])
    assert nodes.news() == [("c", "j", _PRELOAD)]
    nodes.preloads.connected("d")
    nodes.preloads.send_to_spares("j", ["c", "d"])
    assert nodes.news() == [("d", "j", _PRELOAD)]
    nodes.preloads.send_to_spares("j", ["d"])
    nodes.preloads.send_to_spares("j", ["c", "d"])
    assert nodes.news() == [("c", "j", _PRELOAD)]


def test_a_job_that_is_over_teaches_nobody() -> None:
    nodes = Nodes()
    nodes.preloads.heard("j", _PRELOAD)
    nodes.preloads.forget("j")
    nodes.preloads.send_to_spares("j", ["c"])
    assert nodes.news() == []


def _wire(*modules: str, **variables: str) -> fleet_pb2.VaultReport:
    preload = fleet_pb2.Preload(modules=modules, variables=variables)
    return fleet_pb2.VaultReport(job="j", preload=preload)


def test_a_preload_goes_from_one_message_into_the_other() -> None:
    wire = _wire(*_PRELOAD.modules, **_PRELOAD.variables)
    assert vault_report("a", wire, {}).preload == _PRELOAD
    assert changed("a", wire, {}).preload == _PRELOAD
    told = spare_preload(DirectedJob("j", "j-4", "j-1", b""), _PRELOAD, 7).spare_preload
    assert (told.job, told.job_id, told.lineage_id, told.term) == ("j", "j-4", "j-1", 7)
    assert Preload(tuple(told.preload.modules), dict(told.preload.variables)) == _PRELOAD


def test_what_is_no_preload_is_as_if_it_had_not_been_told_and_the_rest_counts() -> None:
    for wire in (_wire("os; rm"), _wire("a", LD_PRELOAD="x.so"), _wire(*["a" * 200] * 400)):
        assert vault_report("a", wire, {}).preload is None
    assert vault_report("a", fleet_pb2.VaultReport(job="j"), {}).preload is None


@dataclass
class PreloadWorld(World):
    """A world that keeps to whom preloads were sent."""

    preloads: list[tuple[str, str, Preload]] = field(default_factory=list)

    def send_preload(self, node: str, job: str, preload: Preload) -> bool:
        self.preloads.append((node, job, preload))
        return True

    @property
    def job(self) -> JobRecord:
        return self.state.newest("train")


def test_members_are_not_told_spares_are_and_without_any_snapshot() -> None:
    world = PreloadWorld()
    world.state.nodes["c"] = NodeRecord(
        "c", NodeState.HEALTHY, liveness=NodeLiveness(connected=True)
    )
    world.job.launchers = {name: Launcher(1) for name in ("a", "b", "c")}
    world.service.report("train", "a", NodeHoldings({}, 0, preload=_PRELOAD))
    world.service.job_changed("train")
    world.settle()
    assert world.preloads == [("c", "train-1", _PRELOAD)]
    world.job.state = JobState.REPLANNING
    world.service.job_changed("train")
    world.settle()
    world.job.state = JobState.RUNNING
    world.service.job_changed("train")
    world.settle()
    assert len(world.preloads) == 1
