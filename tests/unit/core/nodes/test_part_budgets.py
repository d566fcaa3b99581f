"""Budgets of failure domains and of groups, beside those of the fleet."""

import random

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.fleet_index import domain_scope
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes import budgets
from unit.core.test_decisions import XID, S, Story

WIDE = Settings(mode=Mode.ENFORCE, isolation_budget_nodes=50, isolations_per_hour_nodes=1000)


class Racks(Story):
    """A fleet in racks of a row: n0 is in row-0/rack-0, n1 in row-0/rack-1, and so on."""

    def __init__(
        self,
        nodes: int = 24,
        racks: int = 3,
        settings: Settings = WIDE,
        groups: dict[str, Group] | None = None,
    ) -> None:
        self.racks = racks
        super().__init__(0, settings)
        self.tell(events.SettingsApplied(settings, (), groups or {}))
        for index in range(nodes):
            self.connect_in(f"n{index}", self.rack(index))

    def rack(self, index: int) -> str:
        return f"row-0/rack-{index % self.racks}"

    def connect_in(self, node: str, domain: str, boot: str = "1") -> None:
        hello = events.NodeConnected(
            node=node,
            boot_id=boot,
            agent_version="0.1.0",
            outbox=f"{node}-box",
            highest_term=0,
            host=node,
            bulk_address=f"{node}:1",
            liveness_address=f"{node}:2",
            domain=domain,
        )
        for action in self.tell(hello):
            if isinstance(action, actions.RunCheck):
                self.check(action.id, node)

    def check(self, order: str, node: str, *, passed: bool = True) -> None:
        done = reports.CheckFinished(order, passed, "as it says")
        self.tell(events.Reported(self.origin(node), 0, done))

    def isolated(self) -> list[str]:
        return [name for name in self.core.state.nodes if self.owners(name) == ["automation"]]

    def clear(self, node: str) -> None:
        over = reports.FindingCleared("gpu/0", "XidFatal", "well")
        for action in self.tell(events.Reported(self.origin(node), 0, over)):
            if isinstance(action, actions.RunCheck):
                self.check(action.id, action.node)

    def why(self, node: str) -> str:
        return self.core.state.nodes[node].isolation.held_back


def test_a_domain_gives_no_more_nodes_than_its_share_and_says_so() -> None:
    racks = Racks()
    for index in range(0, 24, 3):
        racks.find(f"n{index}", XID)
    assert len(racks.isolated()) == 2, "a quarter of eight"
    held = [name for name in (f"n{index}" for index in range(0, 24, 3)) if racks.why(name)]
    assert len(held) == 6
    assert racks.why(held[0]) == "the budget of domain row-0/rack-0 is spent: 2 isolated nodes"
    assert "domain row-0/rack-0 (2 of 2 isolated)" in budgets.summary(racks.core.state)


def test_a_domain_counts_for_those_above_it() -> None:
    racks = Racks(nodes=24, racks=12)
    for index in range(24):
        racks.find(f"n{index}", XID)
    assert len(racks.isolated()) == 6, "a quarter of the row, whatever its racks have left"
    assert racks.why("n23") == "the budget of domain row-0 is spent: 6 isolated nodes"


def test_a_node_that_is_well_again_makes_room_in_its_domain() -> None:
    racks = Racks()
    for index in (0, 3, 6):
        racks.find(f"n{index}", XID)
    assert racks.isolated() == ["n0", "n3"]
    racks.clear("n0")
    assert racks.isolated() == ["n3", "n6"]


def test_within_an_hour_a_domain_gives_no_more_either() -> None:
    racks = Racks()
    for index in (0, 3, 6, 9, 12):
        racks.find(f"n{index}", XID)
        racks.clear(f"n{index}")
    assert len(racks.core.state.isolations_in[domain_scope("row-0/rack-0")]) == 4
    racks.find("n15", XID)
    assert racks.why("n15") == "the budget of domain row-0/rack-0 is spent: 4 isolations an hour"
    racks.now_ns = racks.core.state.timers["budget"]
    racks.tell(events.TimerDue("budget"), after_s=0)
    assert "n15" in racks.isolated()


def test_without_domains_nothing_is_budgeted_but_the_fleet() -> None:
    story = Story(nodes=24, settings=WIDE)
    for index in range(24):
        story.find(f"n{index}", XID)
    assert len(story.core.state.index.isolated) == 24
    assert story.core.state.isolations_in == {}


def test_a_small_group_has_budgets_of_its_own() -> None:
    logins = Group(nodes=("n0", "n1", "n2"), isolation_budget_nodes=1)
    racks = Racks(nodes=6, groups={"logins": logins})
    for index in range(3):
        racks.find(f"n{index}", XID)
    assert racks.isolated() == ["n0"]
    assert racks.why("n2") == "the budget of group logins is spent: 1 isolated nodes"


def test_no_budget_of_a_domain_limits_the_dead_an_operator_or_a_release() -> None:
    settings = Settings(
        mode=Mode.ENFORCE, domain_isolation_budget_nodes=0, domain_isolation_budget_ratio=0.0
    )
    racks = Racks(settings=settings)
    racks.find("n0", XID)
    assert racks.isolated() == []
    racks.tell(events.OperatorIsolated("n3", "ops", "drill"))
    assert racks.owners("n3") == ["operator"]
    racks.tell(events.OperatorReleased("n3", "ops", "done"))
    assert racks.owners("n3") == []
    racks.lose("n6")
    assert (racks.state("n6"), racks.owners("n6")) == (NodeState.LOST, ["automation"])


@pytest.mark.parametrize("seed", range(10))
def test_no_history_takes_more_of_a_domain_than_its_budget(seed: int) -> None:
    rng, racks = random.Random(seed), Racks(nodes=24)
    open_on: set[str] = set()
    for _ in range(80):
        name = f"n{rng.randrange(24)}"
        if name in open_on and rng.random() < 0.6:
            racks.clear(name)
            open_on.discard(name)
        else:
            racks.find(name, XID)
            open_on.add(name)
        racks.now_ns += rng.randrange(600) * S
        due = racks.core.state.timers.get("budget")
        if due is not None and due <= racks.now_ns:
            racks.tell(events.TimerDue("budget"), after_s=0)
        state = racks.core.state
        for part in budgets.part_budgets(state, sorted(state.index.members_in)):
            assert state.index.isolated_in.get(part.scope, 0) <= part.at_once
            assert len(state.isolations_in.get(part.scope, ())) <= part.per_hour
        assert state.index == state.compute_index()
