"""What a job that waits for nodes has on one node only, and who fetches it from there."""

from dataclasses import replace

import pytest

from everstep_common.reports import Storage
from everstep_controller.core.events import KeeperChosen
from everstep_controller.core.model.job import JobState, Launcher, Members
from everstep_controller.core.model.node import NodeRecord, NodeSpec, NodeState
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.messages import Directive, NodeHoldings
from unit.controller.test_vault_service import World

S = 1_000_000_000
_NOTHING = Directive("train", 1, None, (), "")


def _world(*spares: str) -> World:
    """The job of nodes a and b, whose step 5 is on both; more launchers wait."""
    world = World()
    for name in spares:
        world.state.nodes[name] = NodeRecord(
            name,
            NodeState.HEALTHY,
            liveness=NodeLiveness(connected=True),
            spec=NodeSpec(bulk_address=f"{name}:1", domain=name),
        )
    record = world.state.newest("train")
    record.launchers = {name: Launcher(29500) for name in ("a", "b", *spares)}
    world.report("a", (0, 5), (1, 5))
    world.report("b", (0, 5), (1, 5))
    return world


def _loses(world: World, *names: str, state: JobState = JobState.WAITING_CAPACITY) -> None:
    """Let nodes go away, and the job wait for others, or for its next attempt."""
    record = world.state.newest("train")
    for name in names:
        world.state.nodes[name].liveness.connected = False
        record.launchers.pop(name, None)
    record.state = state
    world.service.job_changed("train")
    world.settle()


def _fetched(told: Directive) -> list[tuple[str, int, int]]:
    return (
        [] if told.prefetch is None else [(c.node, c.rank, c.step) for c in told.prefetch.sources]
    )


@pytest.mark.parametrize("state", [JobState.WAITING_CAPACITY, JobState.BACKING_OFF])
def test_another_node_fetches_what_one_node_only_has(state: JobState) -> None:
    world = _world("c")
    _loses(world, "b", state=state)
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
    world.state.nodes["c"].spec = replace(world.state.nodes["c"].spec, domain="a")
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
    world.state.nodes["b"].liveness.connected = False
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
    world.state.nodes["c"].spec = replace(world.state.nodes["c"].spec, bulk_address="")
    _loses(world, "b")
    assert "c" not in world.directives or _fetched(world.directives["c"]) == []


_RING = {"a": "b", "b": "c", "c": "d", "d": "a"}


def _four() -> World:
    """A job of four nodes: each has its own step 5 and that of the one before it."""
    world = _world("c", "d")
    record = world.state.newest("train")
    record.generation.members = Members(list("abcd"))
    record.lineage.branch = [BranchPoint(1, None, 4)]
    for node, after in _RING.items():
        _holds(world, after, "abcd".index(after), "abcd".index(node))
    return world


def _holds(world: World, node: str, *ranks: int) -> None:
    copies = [Copy(node, 1, r, 5, "abcd"[r] != node, "ff", 1, f"shard-{r}") for r in ranks]
    told = {repr(copy).encode(): copy for copy in copies}
    world.service.report("train", node, NodeHoldings(told, 0, (), ()))
    world.settle()


def test_after_a_second_loss_meanwhile_two_nodes_have_all_of_it_in_the_end() -> None:
    world, have = _four(), {"a": {0, 3}, "c": {1, 2}}
    for lost in "db":
        _loses(world, lost)
        world.service.forget_node(lost)
        world.settle()
    for _ in range(3):
        for node in have:
            have[node] |= {rank for _, rank, _ in _fetched(world.directives[node])}
        for node, ranks in have.items():
            _holds(world, node, *sorted(ranks))
    assert have == {"a": {0, 1, 2, 3}, "c": {0, 1, 2, 3}}
    assert [_fetched(world.directives[node]) for node in have] == [[], []]


def test_of_a_node_that_brings_nothing_another_one_takes_over_and_then_it_is_asked_again() -> None:
    world = _world("c", "d")
    _loses(world, "b")
    asked: list[str] = []
    for _ in range(24):
        world.clock_ns += 20 * S
        world.service.job_changed("train")
        world.settle()
        fetching = [name for name in "cd" if _fetched(world.directives.get(name, _NOTHING))]
        asked += [name for name in fetching if asked[-1:] != [name]]
    assert asked[:4] == ["c", "d", "c", "d"]


def test_who_is_to_fetch_is_asked_what_it_holds_when_the_job_goes_on() -> None:
    world = _world("c")
    _loses(world, "b")
    assert KeeperChosen("train-1", "c") in world.events
