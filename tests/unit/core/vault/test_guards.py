"""What a job that waits for nodes has on one node only, and who fetches it from there."""

from dataclasses import replace

from everstep_common.reports import Storage
from everstep_controller.core.model.job import JobState, Launcher
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.vault.messages import Directive
from unit.controller.test_vault_service import World


def _world(*spares: str) -> World:
    """The job of nodes a and b, whose step 5 is on both; more launchers wait."""
    world = World()
    for name in spares:
        world.state.nodes[name] = NodeRecord(
            name, NodeState.HEALTHY, connected=True, bulk_address=f"{name}:1", domain=name
        )
    record = world.state.newest("train")
    record.launchers = {name: Launcher(29500, 0) for name in ("a", "b", *spares)}
    world.report("a", (0, 5), (1, 5))
    world.report("b", (0, 5), (1, 5))
    return world


def _loses(world: World, *names: str) -> None:
    """Let nodes go away, and the job wait for others."""
    record = world.state.newest("train")
    for name in names:
        world.state.nodes[name].connected = False
        record.launchers.pop(name, None)
    record.state = JobState.WAITING_CAPACITY
    world.service.job_changed("train")
    world.settle()


def _fetched(told: Directive) -> list[tuple[str, int, int]]:
    return (
        [] if told.prefetch is None else [(c.node, c.rank, c.step) for c in told.prefetch.sources]
    )


def test_another_node_fetches_what_one_node_only_has() -> None:
    world = _world("c")
    _loses(world, "b")
    told = world.directives["c"]
    assert _fetched(told) == [("a", 0, 5), ("a", 1, 5)]
    assert told.spare is not None
    assert (told.spare.copy_bytes, told.spare.processes) == (0, 0)
    assert world.directives["a"].prefetch is None


def test_its_order_stays_while_copies_come_and_ends_with_the_last_one() -> None:
    world = _world("c")
    _loses(world, "b")
    world.directives.clear()
    world.report("c", (1, 5))
    assert "c" not in world.directives
    world.service.forget_node("b")
    world.report("c", (0, 5), (1, 5))
    world.settle()
    assert _fetched(world.directives["c"]) == []


def test_when_its_source_is_lost_too_the_next_one_fetches_from_the_guard() -> None:
    world = _world("c", "d")
    _loses(world, "b")
    world.report("c", (0, 5), (1, 5))
    _loses(world, "a")
    assert _fetched(world.directives["d"]) == [("c", 0, 5), ("c", 1, 5)]


def test_it_lies_in_another_failure_domain_where_there_is_one() -> None:
    world = _world("c", "d")
    world.state.nodes["c"].domain = "a"
    _loses(world, "b")
    assert _fetched(world.directives["d"]) == [("a", 0, 5), ("a", 1, 5)]
    assert "c" not in world.directives or _fetched(world.directives["c"]) == []


def test_two_nodes_that_have_parts_alone_guard_each_other() -> None:
    world = _world("c")
    world.service.forget_node("b")
    world.report("a", (0, 5))
    world.report("c", (1, 5))
    _loses(world, "b")
    assert _fetched(world.directives["a"]) == [("c", 1, 5)]
    assert _fetched(world.directives["c"]) == [("a", 0, 5)]


def test_nobody_fetches_while_the_job_trains() -> None:
    world = _world()
    world.state.nodes["b"].connected = False
    world.service.job_changed("train")
    world.settle()
    assert all(_fetched(told) == [] for told in world.directives.values())


def test_nobody_fetches_for_a_job_that_ends() -> None:
    world = _world("c")
    world.state.newest("train").ending.wanted = "cancelled by ann"
    _loses(world, "b")
    assert all(_fetched(told) == [] for told in world.directives.values())


def test_a_job_with_storage_brings_its_step_there_instead() -> None:
    world = _world("c")
    record = world.state.newest("train")
    record.spec = replace(record.spec, storage=Storage("/ckpt"))
    _loses(world, "b")
    assert all(_fetched(told) == [] for told in world.directives.values())


def test_nobody_fetches_from_a_node_that_cannot_be_reached_or_for_one_that_cannot() -> None:
    world = _world("c")
    world.state.nodes["c"].bulk_address = ""
    _loses(world, "b")
    assert "c" not in world.directives or _fetched(world.directives["c"]) == []
