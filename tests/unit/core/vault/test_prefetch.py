"""What a spare fetches before it has its place: at suspicion, and while the job stops."""

import pytest

from everstep_common.orders import ShardSource
from everstep_controller.api.fleet import to_agent
from everstep_controller.core.model.job import JobState, Launcher
from everstep_controller.core.model.node import Claim, NodeRecord, NodeSpec, NodeState
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.vault.messages import Directive
from everstep_controller.core.vault.spares import Prefetch, SpareNeed, suspects
from unit.controller.test_vault_service import World


def _world() -> World:
    """The job of nodes a and b, whose step 5 is on both, with the spare c."""
    world = World()
    world.state.nodes["c"] = NodeRecord(
        "c",
        NodeState.HEALTHY,
        liveness=NodeLiveness(connected=True),
        spec=NodeSpec(bulk_address="c:1", domain="c"),
    )
    record = world.state.newest("train")
    record.launchers = {name: Launcher(29500) for name in ("a", "b", "c")}
    world.report("a", (0, 5), (1, 5))
    world.report("b", (0, 5), (1, 5))
    assert world.directives["c"].prefetch is None
    return world


def _silent(world: World, name: str, *, connected: bool = False) -> None:
    node = world.state.nodes[name]
    node.liveness.connected, node.liveness.silent_to = connected, ["d"]
    world.service.refresh_jobs_of(name)
    world.settle()


def _ahead(world: World) -> Prefetch:
    ahead = world.directives["c"].prefetch
    assert ahead is not None
    return ahead


def test_the_spare_fetches_what_the_silent_member_had_from_who_else_has_it() -> None:
    world = _world()
    _silent(world, "b")
    ahead = _ahead(world)
    assert ahead.first_rank == 1
    assert [(one.node, one.rank, one.step) for one in ahead.sources] == [("a", 1, 5)]


def test_a_member_that_only_its_peers_miss_is_silent_too() -> None:
    world = _world()
    _silent(world, "b", connected=True)
    assert [one.node for one in _ahead(world).sources] == ["a"]


def test_it_is_the_step_that_the_plan_would_take_also_where_it_is_not_safe_yet() -> None:
    world = _world()
    world.report("a", (0, 5), (1, 5), (0, 6), (1, 6))
    _silent(world, "b")
    assert [one.step for one in _ahead(world).sources] == [6]
    assert world.directives["a"].recoverable_step == 5


def test_it_is_fetched_too_while_the_job_stops_because_the_other_ranks_failed() -> None:
    world = _world()
    world.state.newest("train").state = JobState.STOPPING
    _silent(world, "b")
    assert [(one.node, one.rank) for one in _ahead(world).sources] == [("a", 1)]


def test_it_is_left_off_when_the_member_is_heard_again() -> None:
    world = _world()
    _silent(world, "b")
    node = world.state.nodes["b"]
    node.liveness.connected, node.liveness.silent_to = True, []
    world.service.refresh_jobs_of("b")
    world.settle()
    told = world.directives["c"]
    assert told.spare is not None
    assert told.prefetch is None


def test_it_goes_on_when_the_member_is_judged_lost() -> None:
    world = _world()
    _silent(world, "b")
    world.state.nodes["b"].state = NodeState.LOST
    world.state.newest("train").state = JobState.STOPPING
    world.service.forget_node("b")
    world.settle()
    assert _ahead(world).first_rank == 1


def _stops(world: World, *claims: Claim, state: NodeState = NodeState.HEALTHY) -> None:
    """Let the job stop because somebody keeps node b from having ranks."""
    node, record = world.state.nodes["b"], world.state.newest("train")
    node.isolation.claims, node.state, record.state = list(claims), state, JobState.STOPPING
    world.service.job_changed("train")
    world.settle()


@pytest.mark.parametrize(
    ("claim", "state"),
    [
        (Claim("automation", "Xid 79", 0), NodeState.REPAIRING),
        (Claim("operator", "smoke", 0), NodeState.HEALTHY),
        (Claim("operator", "fan", 0, draining=True), NodeState.HEALTHY),
        (Claim("maintenance", "m-1", 0), NodeState.MAINTENANCE),
    ],
)
def test_what_a_member_has_that_the_stopping_job_leaves_is_fetched_from_itself_too(
    claim: Claim, state: NodeState
) -> None:
    world = _world()
    _stops(world, claim, state=state)
    ahead = _ahead(world)
    assert ahead.first_rank == 1
    assert [(one.node, one.rank) for one in ahead.sources] == [("b", 1), ("a", 1)]


def test_a_member_whose_launcher_has_gone_is_left_as_well() -> None:
    world = _world()
    del world.state.newest("train").launchers["b"]
    _stops(world)
    assert _ahead(world).first_rank == 1


def test_a_member_that_is_lost_while_the_job_stops_is_left_too() -> None:
    world = _world()
    world.state.nodes["b"].liveness.connected = False
    _stops(world, state=NodeState.LOST)
    assert [(one.node, one.rank) for one in _ahead(world).sources] == [("a", 1)]


def test_a_newer_step_that_the_ranks_still_commit_is_fetched_instead() -> None:
    world = _world()
    _stops(world, Claim("automation", "Xid 79", 0))
    world.report("a", (0, 5), (1, 5), (0, 6), (1, 6))
    assert [one.step for one in _ahead(world).sources] == [6]


def test_while_a_job_trains_nothing_is_fetched_for_a_drain_that_is_planned() -> None:
    world = _world()
    world.state.nodes["b"].isolation.claims = [Claim("operator", "fan", 0, draining=True)]
    world.report("a", (0, 5), (1, 5), (0, 6), (1, 6))
    assert world.directives["c"].prefetch is None


def test_nothing_is_fetched_when_everybody_keeps_its_place() -> None:
    world = _world()
    _stops(world)
    assert world.directives["c"].prefetch is None


def test_nothing_is_fetched_for_a_job_that_ends() -> None:
    world = _world()
    world.state.newest("train").ending.wanted = "cancelled by ann"
    _stops(world, Claim("automation", "Xid 79", 0))
    assert world.directives["c"].prefetch is None


def test_a_spare_that_failed_its_check_fetches_nothing() -> None:
    world = _world()
    world.state.nodes["c"].spare_check.failed = "probe nvml: no answer"
    _stops(world, Claim("automation", "Xid 79", 0))
    assert world.directives["c"].prefetch is None


def test_members_that_a_new_controller_has_not_heard_yet_are_not_left() -> None:
    world = _world()
    world.state.nodes["b"].liveness.connected = False
    world.state.term = 3
    _stops(world)
    assert world.directives["c"].prefetch is None


def test_a_spare_that_leaves_the_job_meanwhile_is_told_no_more_of_it() -> None:
    world = _world()
    _silent(world, "b")
    record = world.state.newest("train")
    record.state = JobState.STOPPING
    del record.launchers["c"]
    world.directives.clear()
    world.service.connected("c", [])
    world.service.connected("a", ["train"])
    world.settle()
    assert list(world.directives) == ["a"]


def test_before_a_step_is_safe_a_spare_is_told_nothing() -> None:
    world = World()
    world.state.nodes["c"] = NodeRecord(
        "c",
        NodeState.HEALTHY,
        liveness=NodeLiveness(connected=True),
        spec=NodeSpec(bulk_address="c:1", domain="c"),
    )
    world.state.newest("train").launchers = {name: Launcher(29500) for name in ("a", "b", "c")}
    world.report("a", (0, 5), (1, 5))
    world.report("b", (1, 5))
    _silent(world, "b")
    assert "a" in world.directives
    assert "c" not in world.directives


def test_what_has_come_meanwhile_makes_it_no_other_order() -> None:
    world = _world()
    _silent(world, "b")
    before = world.directives.pop("c")
    world.report("c", (1, 5))
    assert "c" not in world.directives
    assert before.prefetch is not None


def test_nothing_is_fetched_when_the_other_half_is_silent_too() -> None:
    world = _world()
    for name in ("a", "b"):
        world.state.nodes[name].liveness.silent_to = ["d"]
    assert suspects(world.state.newest("train"), world.state) == []


def test_a_node_that_this_controller_has_not_heard_yet_is_not_silent() -> None:
    world = _world()
    world.state.term = 3
    _silent(world, "b")
    assert world.directives["c"].prefetch is None


def test_a_node_that_somebody_works_on_is_not_silent() -> None:
    world = _world()
    world.state.nodes["b"].state = NodeState.MAINTENANCE
    _silent(world, "b")
    assert world.directives["c"].prefetch is None


def test_the_order_names_ranks_copies_and_the_key() -> None:
    source = ShardSource("a", "a:1", 1, 1, 5, "ff", 8, "aa")
    told = Directive(
        "train", 1, None, (), "", spare=SpareNeed(8, 1), prefetch=Prefetch(1, (source,))
    )
    job = to_agent.DirectedJob("train", "train-1", "train-1", b"key")
    wire = to_agent.directive(told, job, {}, 7).spare_memory
    assert (wire.first_rank, wire.transfer_key) == (1, b"key")
    assert [(one.node, one.rank, one.step) for one in wire.ahead] == [("a", 1, 5)]
