from dataclasses import replace

from everstep_common.orders import ShardSource
from everstep_controller.api.fleet.to_agent import DirectedJob, directive
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.events import KeeperChosen
from everstep_controller.core.model.job import (
    Generation,
    JobRecord,
    JobSpec,
    JobState,
    Launcher,
    Lineage,
    Members,
)
from everstep_controller.core.model.node import NodeRecord, NodeSpec, NodeState
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.directives import JobSnapshots
from everstep_controller.core.vault.messages import Directive, NodeHoldings
from everstep_controller.core.vault.replication import keeper_of
from everstep_controller.core.vault.spares import SpareNeed, copy_bytes_max, spares_of
from unit.controller.test_vault_service import World

_MIB = 1024 * 1024
_GENERATION = 1


def _job(*launchers: str) -> JobRecord:
    record = JobRecord(
        id="train-1",
        name="train",
        spec=JobSpec(uid=0, token_sha256="", nodes_min=2, nodes_max=2, reform=True),
        ledger=Ledger(0),
        state=JobState.RUNNING,
        generation=Generation(_GENERATION, members=Members(["a", "b"])),
        lineage=Lineage([BranchPoint(_GENERATION, None, 2)]),
    )
    record.launchers = {name: Launcher(29500) for name in launchers}
    return record


def _copy(node: str, rank: int, size_bytes: int) -> Copy:
    replica = "ab"[rank] != node
    return Copy(node, _GENERATION, rank, 5, replica, "ff", size_bytes, f"shard-{rank}")


def _state() -> State:
    state = State()
    for name in ("a", "b", "c"):
        state.nodes[name] = NodeRecord(
            name,
            NodeState.HEALTHY,
            liveness=NodeLiveness(connected=True),
            spec=NodeSpec(domain=name),
        )
    return state


def _vault(record: JobRecord, sizes: tuple[int, int]) -> JobSnapshots:
    vault, state = JobSnapshots("train"), _state()
    vault.adopt(record, state)
    for node in ("a", "b"):
        copies = {bytes([rank]): _copy(node, rank, size) for rank, size in enumerate(sizes)}
        vault.record_report(node, NodeHoldings(copies, 0))
    vault.decide(record, state, 0)
    return vault


def test_who_waits_while_the_job_runs_is_a_spare() -> None:
    record = _job("a", "b", "c")
    assert spares_of(record) == {"c"}
    record.state = JobState.REPLANNING
    assert not spares_of(record)


def test_a_spare_has_memory_ready_for_the_largest_copy() -> None:
    vault = _vault(_job("a", "b", "c"), (3 * _MIB, 5 * _MIB - 1))
    assert dict(vault.directives()).keys() == {"a", "b", "c"}
    assert dict(vault.directives())["c"].spare == SpareNeed(5 * _MIB, 1)
    assert dict(vault.directives())["a"].spare is None


def test_nothing_is_said_to_a_spare_before_a_size_is_known() -> None:
    record = _job("a", "b", "c")
    vault, state = JobSnapshots("train"), _state()
    vault.adopt(record, state)
    vault.decide(record, state, 0)
    assert dict(vault.directives()).keys() == {"a", "b"}


def test_a_spare_that_holds_copies_is_directed_like_a_member() -> None:
    record = _job("a", "b", "c")
    vault = _vault(record, (_MIB, _MIB))
    vault.record_report("c", NodeHoldings({b"old": _copy("c", 0, _MIB)}, 0))
    vault.decide(record, _state(), 0)
    assert dict(vault.directives())["c"].spare is None
    assert "c" in dict(vault.directives())


def test_a_little_growth_of_the_state_is_no_news() -> None:
    sizes = [copy_bytes_max([_copy("a", 0, size)]) for size in (_MIB + 1, 2 * _MIB)]
    assert sizes == [2 * _MIB, 2 * _MIB]
    assert copy_bytes_max([]) == 0


def test_a_spare_that_comes_back_is_told_again() -> None:
    world = World()
    launchers = world.state.newest("train").launchers
    launchers["c"] = Launcher(29500)
    world.report("a", (0, 5), (1, 5))
    world.report("b", (0, 5), (1, 5))
    told = world.directives.pop("c")
    assert told.spare is not None
    world.report("a", (0, 5), (1, 5))
    assert "c" not in world.directives
    del launchers["c"]
    world.service.job_changed("train")
    world.settle()
    launchers["c"] = Launcher(29500)
    world.service.job_changed("train")
    world.settle()
    assert world.directives["c"] == told


def test_a_spare_hears_of_its_memory_and_of_nothing_else() -> None:
    what = Directive("train", 2, None, (), "", spare=SpareNeed(_MIB, 8))
    message = directive(what, DirectedJob("train", "train-1", "train-1", b"key"), {}, 7)
    assert message.WhichOneof("body") == "spare_memory"
    wanted = message.spare_memory
    assert (wanted.job, wanted.copy_bytes, wanted.processes, wanted.term) == ("train", _MIB, 8, 7)


def test_a_directive_has_the_addresses_of_the_nodes_whose_replicas_are_kept() -> None:
    nodes = {
        name: NodeRecord(name, NodeState.HEALTHY, spec=NodeSpec(bulk_address=address))
        for name, address in (("a", "a:1"), ("b", "b:1"), ("c", ""))
    }
    what = Directive("train", 2, None, (), "a", replica_sources=("b", "c", "retired"))
    job = DirectedJob("train", "train-1", "train-1", b"key")
    told = directive(what, job, nodes, 7).vault
    assert (told.replica_target, told.replica_bulk_address) == ("a", "a:1")
    assert list(told.replica_sources) == ["b:1"]


def _of_one_node(*spares: str) -> World:
    """The job of a world, on node a alone, with spares that wait; b and c are other domains."""
    world = World()
    for name in spares:
        world.state.nodes[name] = NodeRecord(
            name,
            NodeState.HEALTHY,
            liveness=NodeLiveness(connected=True),
            spec=NodeSpec(bulk_address=f"{name}:1", domain=name),
        )
    record = world.state.newest("train")
    record.generation.members, record.lineage.branch = Members(["a"]), [BranchPoint(1, None, 1)]
    record.launchers = {name: Launcher(29500) for name in ("a", *spares)}
    world.service.job_changed("train")
    world.settle()
    return world


def test_a_job_on_one_node_has_its_replicas_kept_by_a_spare() -> None:
    world = _of_one_node("b", "c")
    assert world.directives["a"].replica_target == "b"
    assert world.directives["b"].spare is None
    assert KeeperChosen("train-1", "b") in world.events


def test_the_spare_hears_from_what_the_generation_began_and_members_from_their_plan() -> None:
    world = _of_one_node("b")
    source = ShardSource("a", "a:1", 1, 0, 5, "00" * 16, 100)
    world.state.newest("train").generation.sources = (source,)
    world.report("a", (0, 5))
    assert world.directives["b"].sources == (source,)
    assert world.directives["a"].sources == ()


def test_a_step_of_it_is_recoverable_when_the_spare_has_it() -> None:
    world = _of_one_node("b")
    world.report("a", (0, 5))
    assert world.directives["a"].recoverable_step is None
    world.report("b", (0, 5))
    assert world.directives["a"].recoverable_step == world.directives["b"].recoverable_step == 5


def test_without_a_spare_its_own_copy_is_enough() -> None:
    world = _of_one_node()
    world.report("a", (0, 5))
    assert (world.directives["a"].recoverable_step, world.directives["a"].replica_target) == (5, "")


def test_when_the_keeper_is_away_another_spare_takes_over_and_nobody_waits_without_one() -> None:
    world = _of_one_node("b", "c")
    world.state.nodes["b"].liveness.connected = False
    world.report("a", (0, 5))
    assert world.directives["a"].replica_target == "c"
    world.state.nodes["c"].liveness.connected = False
    world.report("a", (0, 5), (0, 6))
    assert (world.directives["a"].recoverable_step, world.directives["a"].replica_target) == (6, "")


def test_while_it_stops_nothing_is_freed_that_the_keeper_has_alone() -> None:
    world = _of_one_node("b")
    world.report("a", (0, 5))
    world.report("b", (0, 5))
    world.state.newest("train").state = JobState.STOPPING
    world.report("a", (0, 5), (0, 6))
    assert world.directives["b"].recoverable_step == 5


def test_a_keeper_of_another_domain_is_preferred_and_kept() -> None:
    record, state = _job("a", "b", "c"), _state()
    record.generation.members = Members(["a"])
    state.nodes["b"].spec = replace(state.nodes["b"].spec, domain="a")
    for node in state.nodes.values():
        node.spec = replace(node.spec, bulk_address="x:1")
    assert keeper_of(record, state, "", ()) == "c"
    assert keeper_of(record, state, "b", ()) == "b"
    state.nodes["b"].spec = replace(state.nodes["b"].spec, domain="b")
    assert keeper_of(record, state, "", ("c",)) == "c"


def test_a_node_that_failed_its_check_is_the_last_to_become_a_keeper_and_stays_one() -> None:
    record, state = _job("a", "b", "c"), _state()
    record.generation.members = Members(["a"])
    state.nodes["b"].spec = replace(state.nodes["b"].spec, domain="a")
    for node in state.nodes.values():
        node.spec = replace(node.spec, bulk_address="x:1")
    state.nodes["c"].spare_check.failed = "probe nvml: no answer"
    assert keeper_of(record, state, "", ()) == "b"
    assert keeper_of(record, state, "c", ()) == "c"
