"""An event of one node or job looks at what it concerns, however many others there are."""

from collections.abc import Iterator
from typing import NoReturn

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.turn import TimerKind
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.recovery_step import reachable_nodes
from everstep_controller.core.vault.replication import plan_ring
from unit.core.test_decisions import XID, S, Story, launcher_joined

NODES = [f"n{number:03}" for number in range(200)]


class _Nodes(dict[str, NodeRecord]):
    """Nodes by name, each of which may be looked at, but not all in one go."""

    def __init__(self, nodes: dict[str, NodeRecord]) -> None:
        super().__init__(nodes)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> NodeRecord:
        self.seen.add(name)
        return super().__getitem__(name)

    def values(self) -> NoReturn:
        raise AssertionError("all nodes were looked at")

    def items(self) -> NoReturn:
        raise AssertionError("all nodes were looked at")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all nodes were looked at")


class _Jobs(dict[str, JobRecord]):
    """Jobs by id, each of which may be looked at, but not all in one go."""

    def values(self) -> NoReturn:
        raise AssertionError("all jobs were looked at")

    def items(self) -> NoReturn:
        raise AssertionError("all jobs were looked at")

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all jobs were looked at")


class Watched(Story):
    """Two hundred healthy nodes with a running job on the first two, and who is looked at."""

    def __init__(self) -> None:
        super().__init__(nodes=0, settings=Settings(mode=Mode.ENFORCE))
        for node in NODES:
            self.connect(node)
        self.join("n000")
        self.join("n001")
        self.choose(None)
        self.progress(0)
        state = self.core.state
        self.nodes = state.nodes = _Nodes(state.nodes)
        state.jobs = _Jobs(state.jobs)

    def looked_at(self, *told: events.Event) -> list[str]:
        """Return which nodes are looked at for events, in order."""
        self.nodes.seen.clear()
        for event in told:
            self.tell(event)
        return sorted(self.nodes.seen)

    def joined(self, job: str, node: str) -> events.Event:
        launcher = launcher_joined(nodes_min=1, nodes_max=1)
        return events.Reported(self.origin(node), 0, launcher, job)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_silence_concerns_the_node_who_told_of_it_and_who_is_asked(watched: Watched) -> None:
    looked_at = watched.looked_at(events.PeerReported("n101", "n100", True, 3 * S))
    waiting = watched.nodes["n100"].liveness.confirmation
    assert waiting is not None
    assert set(looked_at) <= {"n100", *waiting.asked}
    answers = [events.PeerJudged(node, "n100", waiting.id, False) for node in waiting.asked]
    assert set(watched.looked_at(*answers)) <= {"n100", *waiting.asked}
    watched.now_ns += 6 * S
    due = events.TimerDue(f"{TimerKind.SILENCE}/n100")
    assert set(watched.looked_at(due)) <= {"n100", *waiting.asked}
    assert watched.state("n100") is NodeState.LOST


def test_a_stream_that_stays_closed_concerns_its_node_and_who_is_asked(watched: Watched) -> None:
    watched.looked_at(events.NodeDisconnected("n100"))
    waiting = watched.nodes["n100"].liveness.confirmation
    assert waiting is not None
    watched.now_ns += 200 * S
    for kind in (TimerKind.CONFIRM, TimerKind.SILENCE):
        looked_at = watched.looked_at(events.TimerDue(f"{kind}/n100"))
        again = watched.nodes["n100"].liveness.confirmation
        assert set(looked_at) <= {"n100", *waiting.asked, *(again.asked if again else ())}
    assert watched.nodes["n100"].doubtful


def test_a_node_that_is_isolated_within_a_budget_is_alone_looked_at(watched: Watched) -> None:
    finding = events.Reported(watched.origin("n100"), 0, reports.FindingRaised(XID))
    assert watched.looked_at(finding) == ["n100"]
    assert watched.owners("n100") == ["automation"]


def test_a_node_that_connects_is_told_its_own_orders_alone(watched: Watched) -> None:
    watched.tell(events.PeerReported("n101", "n100", True))
    waiting = watched.nodes["n100"].liveness.confirmation
    assert waiting is not None
    asked = waiting.asked[0]
    hello = events.NodeConnected(
        node=asked,
        boot_id="1",
        agent_version="0.1.0",
        outbox=f"{asked}-box",
        highest_term=0,
        host=asked,
    )
    watched.nodes.seen.clear()
    done = watched.tell(hello)
    assert [a.peer for a in done if isinstance(a, actions.ConfirmSilence)] == ["n100"]
    assert watched.nodes.seen == {asked, "n100"} | watched.nodes.seen & {"n000", "n001"}


def test_a_job_that_begins_and_ends_concerns_its_node_and_no_other_job(watched: Watched) -> None:
    assert watched.looked_at(watched.joined("k", "n150")) == ["n150"]
    left = reports.LauncherLeft(reason="SIGTERM", by_user=True)
    gone = events.Reported(watched.origin("n150"), 0, left, "k")
    assert watched.looked_at(gone) == ["n150"]


def test_a_window_concerns_its_nodes_and_the_jobs_on_them(watched: Watched) -> None:
    begin_ns = watched.now_ns + S
    order = events.MaintenanceOrdered(
        nodes=("n000", "n150"), begin_ns=begin_ns, end_ns=begin_ns + 600 * S, operator="ann"
    )
    assert set(watched.looked_at(order)) == {"n000", "n001", "n150"}


def test_a_pause_and_its_end_concern_the_job_or_the_node_that_is_named(watched: Watched) -> None:
    paused = (
        events.AutomationPaused("j", "ops", "debugging"),
        events.AutomationResumed("j", "ops"),
    )
    assert set(watched.looked_at(*paused)) <= {"n000", "n001"}
    paused = (
        events.AutomationPaused("n100", "ops", "debugging"),
        events.AutomationResumed("n100", "ops"),
    )
    assert watched.looked_at(*paused) == ["n100"]


def test_a_ring_of_replicas_is_planned_from_its_members_alone(watched: Watched) -> None:
    watched.nodes.seen.clear()
    ring = plan_ring(["n000", "n001"], watched.core.state, ())
    assert ring.targets == {"n000": "n001", "n001": "n000"}
    assert watched.nodes.seen == {"n000", "n001"}


def test_what_can_be_restored_is_asked_of_the_nodes_in_the_catalogue(watched: Watched) -> None:
    catalogue = Catalogue()
    catalogue.replace("n100", (), 1)
    watched.nodes.seen.clear()
    assert reachable_nodes(watched.core.state, catalogue) == {"n100": "n100:1"}
    assert watched.nodes.seen == {"n100"}


def test_a_holder_that_comes_back_has_a_job_ask_for_its_state_that_waits_for_it() -> None:
    story = Story(nodes=4)
    story.run()
    story.join("n2")
    story.tell(events.KeeperChosen("j", "n3"))
    story.tell(events.NodeDisconnected("n3"))
    story.exit_rank("n0")
    story.stop_all()
    story.choose(None, lost="nobody has step 0")
    job = story.core.state.newest("j")
    assert job.state is JobState.WAITING_STATE
    hello = events.NodeConnected(
        node="n3",
        boot_id="1",
        agent_version="0.1.0",
        outbox="n3-box",
        highest_term=0,
        host="n3",
        jobs=(reports.JobOnNode("j", 1, launcher=False),),
    )
    asked = [a for a in story.tell(hello) if isinstance(a, actions.ChooseRecoveryStep)]
    assert len(asked) == 1
