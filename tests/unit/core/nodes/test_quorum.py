"""Quorum: what a controller takes for a loss that hears all of its fleet, most of it, or less."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from everstep_common.judging.findings import Mode
from everstep_common.reports import TcpAnswer
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes import quorum
from everstep_controller.core.recovery import planning
from unit.core.test_decisions import S, Story

SETTINGS = Settings(mode=Mode.ENFORCE)
HOUR_S = 3600


class Cut:
    """A fleet with a cut: nodes behind it answer nobody, and no roll call."""

    def __init__(
        self,
        domains: dict[str, str],
        settings: Settings = SETTINGS,
        drivers: tuple[str, ...] = (),
    ) -> None:
        self.story = Story(nodes=0, settings=settings, drivers=drivers)
        self.state = self.story.core.state
        self.behind: set[str] = set()
        for node, domain in domains.items():
            self.story.connect(node)
            self.say_hello(node, domain)

    def say_hello(self, node: str, domain: str, machine: str = "") -> None:
        """Have the agent of a node open its stream anew."""
        hello = events.NodeConnected(
            node=node,
            boot_id="1",
            agent_version="0.1.0",
            outbox=f"{node}-box",
            highest_term=self.story.terms[f"{node}-box"],
            host=node,
            domain=domain,
            bulk_address=f"{node}:1",
            liveness_address=f"{node}:2",
            machine=machine or f"machine of {node}",
        )
        self.tell(hello)
        self.story.terms[f"{node}-box"] = self.state.term

    def tell(self, event: events.Event) -> None:
        """Tell the core something, and have those who can answer what it asks."""
        done = self.story.core.handle(event, self.story.now_ns)
        for action in done:
            self._answer(action)

    def _answer(self, action: actions.Action) -> None:
        match action:
            case actions.ConfirmSilence(node=asked, peer=peer) if asked not in self.behind:
                reached = peer not in self.behind
                answer = TcpAnswer.ACCEPTED if reached else TcpAnswer.SILENT
                self.tell(events.PeerJudged(asked, peer, action.id, udp=reached, tcp=answer))
            case actions.CallRoll():
                heard = len(set(self.state.nodes) - self.behind)
                self.tell(events.RollCalled(action.id, heard))
            case _:
                pass

    def begin(self, behind: Collection[str]) -> None:
        """Cut nodes off; all of their streams end at once."""
        self.behind |= set(behind)
        for node in sorted(behind):
            self.tell(events.NodeDisconnected(node))

    def heal(self) -> None:
        """Have all nodes come back."""
        back, self.behind = sorted(self.behind), set[str]()
        for node in back:
            self.say_hello(node, self.state.nodes[node].spec.domain)

    def wait(self, seconds: float) -> None:
        """Let time pass, with the timers of silences."""
        until_ns = self.story.now_ns + int(seconds * S)
        while True:
            due = [
                (at_ns, name)
                for name, at_ns in self.state.timers.items()
                if name.startswith(("silence/", "confirm/")) and at_ns <= until_ns
            ]
            if not due:
                break
            at_ns, name = min(due)
            self.story.now_ns = max(at_ns, self.story.now_ns)
            self.tell(events.TimerDue(name))
        self.story.now_ns = until_ns

    @property
    def lost(self) -> set[str]:
        """Return the lost nodes."""
        return {name for name, node in self.state.nodes.items() if node.state is NodeState.LOST}

    @property
    def finding(self) -> str:
        """Return what is found of the controller itself."""
        open_findings = (held.finding for held in self.state.findings.values())
        found = [f"{one.message}; {one.evidence}; {one.rule}" for one in open_findings]
        return found[0] if found else ""


def _names(count: int, first: int = 0) -> list[str]:
    return [f"n{number:02}" for number in range(first, count)]


def _racks(count: int, racks: int) -> dict[str, str]:
    return {name: f"rack-{number % racks}" for number, name in enumerate(_names(count))}


def _without_domains(count: int) -> dict[str, str]:
    return dict.fromkeys(_names(count), "")


def test_a_controller_that_hears_at_most_half_loses_nobody_however_long_that_lasts() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(_names(12, 6))
    cut.wait(24 * HOUR_S)
    assert not cut.lost
    assert all(cut.state.nodes[name].doubtful for name in cut.behind)
    assert "this controller is cut off, or most of the fleet is down: it hears 6 of 12" in (
        cut.finding
    )
    assert "n06, n07, n08, n09 and 2 more are silent" in cut.finding
    assert "everstep nodes lost NODES" in cut.finding


def test_what_a_controller_held_is_heard_again_when_the_cut_heals() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(_names(12, 2))
    cut.wait(60)
    cut.heal()
    cut.wait(1)
    assert not any(node.doubtful for node in cut.state.nodes.values())
    assert (cut.lost, cut.finding, cut.state.index.held) == (set(), "", [])


def test_a_silent_node_that_a_peer_hears_again_is_held_no_more() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(_names(12, 6))
    cut.wait(60)
    assert "n06" in cut.state.index.held
    cut.tell(events.PeerReported("n00", "n06", silent=False))
    assert "n06" not in cut.state.index.held
    assert cut.state.index == cut.state.compute_index()


@pytest.mark.parametrize("domains", [_without_domains(12), _racks(12, 6)])
def test_anything_below_half_is_lost_after_five_seconds(domains: dict[str, str]) -> None:
    cut = Cut(domains)
    cut.begin(_names(12, 7))
    cut.wait(SETTINGS.silence_ns / S + 0.1)
    assert cut.lost == set(_names(12, 7))
    assert not cut.finding


def test_two_cuts_one_after_the_other_are_no_smaller_than_one() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(_names(12, 8))
    cut.wait(10)
    assert len(cut.lost) == 4
    cut.begin(_names(8, 5))
    cut.wait(HOUR_S)
    assert len(cut.lost) == 4
    assert "it hears 5 of 12 nodes" in cut.finding


def test_the_word_of_the_controllers_own_domain_loses_nobody() -> None:
    domains = _racks(12, 2)
    cut = Cut(domains)
    cut.tell(events.ControllerStarted("0.1.0", "machine of n00"))
    for name, domain in domains.items():
        cut.say_hello(name, domain)
    behind = [name for name, domain in domains.items() if domain == "rack-1"]
    cut.begin(behind[:5])
    cut.wait(10)
    # One node of the other rack is heard, and could tell.
    assert cut.lost == set(behind[:5])
    cut.begin(behind[5:])
    cut.wait(HOUR_S)
    assert cut.lost == set(behind[:5])
    assert "it hears 6 of 12" in cut.finding


def test_a_whole_rack_is_lost_by_the_word_of_another_that_is_not_the_controllers() -> None:
    domains = _racks(12, 3)
    cut = Cut(domains, replace(SETTINGS, controller_domain="rack-0"))
    behind = {name for name, domain in domains.items() if domain == "rack-2"}
    cut.begin(behind)
    cut.wait(6)
    assert cut.lost == behind


def test_a_rack_that_only_the_controllers_rack_misses_is_doubtful() -> None:
    domains = {name: "rack-0" if number < 8 else "rack-1" for number, name in enumerate(_names(12))}
    cut = Cut(domains, replace(SETTINGS, controller_domain="rack-0"))
    cut.begin(_names(12, 8))
    cut.wait(HOUR_S)
    assert not cut.lost
    assert "only peers in rack-0, its own failure domain, could be asked" in cut.finding


def test_a_machine_that_plays_many_nodes_is_in_no_domain_of_theirs() -> None:
    cut = Cut(_racks(12, 2))
    cut.tell(events.ControllerStarted("0.1.0", "one"))
    for name in _names(12):
        cut.say_hello(name, cut.state.nodes[name].spec.domain, machine="one")
    cut.begin(["n01"])
    cut.wait(6)
    assert cut.lost == {"n01"}


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_in_a_fleet_of_up_to_four_nodes_silence_decides_alone(nodes: int) -> None:
    cut = Cut(_without_domains(nodes))
    cut.begin(_names(nodes, 1))
    cut.wait(SETTINGS.loss_hold_ns / S + 10)
    assert cut.lost == set(_names(nodes, 1))


def test_a_roll_call_of_before_a_cut_says_nothing_of_it() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(["n11"])
    cut.wait(6)
    assert cut.lost == {"n11"}
    # The streams of others are not known to have ended yet.
    cut.behind |= set(_names(11, 5))
    cut.begin(["n10", "n09"])
    cut.wait(60)
    assert cut.lost == {"n11"}


def test_a_cut_that_heals_partly_loses_those_who_stay_behind_it() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(_names(12, 4))
    cut.wait(60)
    back = _names(10, 4)
    cut.behind -= set(back)
    for name in back:
        cut.say_hello(name, "")
    cut.wait(30)
    assert cut.lost == {"n10", "n11"}
    assert not cut.finding


def test_a_controller_that_hears_nobody_says_that_it_may_be_cut_off() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(_names(12))
    cut.wait(60)
    assert not cut.lost
    assert "nobody is heard who could tell" in cut.finding
    cut.heal()
    assert not cut.finding


def test_a_controller_that_starts_anew_behind_a_cut_loses_nobody() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(_names(12, 5))
    cut.wait(30)
    cut.tell(events.ControllerStarted("0.1.0"))
    for name in _names(5):
        cut.say_hello(name, "")
    cut.wait(HOUR_S)
    assert not cut.lost
    assert "it hears 5 of 12 nodes" in cut.finding


def test_an_operator_has_held_nodes_taken_for_lost_and_the_share_is_of_the_others() -> None:
    cut = Cut(_without_domains(12))
    cut.begin(_names(12, 6))
    cut.wait(60)
    for name in _names(12, 6):
        cut.tell(events.NodeDeclaredLost(name, "ann", "hall 2 has no power"))
    assert cut.lost == set(_names(12, 6))
    assert cut.state.nodes["n06"].reason == "ann says so: hall 2 has no power"
    assert not cut.finding
    cut.begin(["n05"])
    cut.wait(6)
    assert "n05" in cut.lost


def test_a_scheduler_that_does_not_hear_held_nodes_either_has_them_lost_and_no_other() -> None:
    cut = Cut(_without_domains(12), drivers=("slurm",))
    down = tuple((name, "DOWN*: not responding") for name in _names(12, 5))
    cut.tell(events.DriverReported(driver="slurm", read=True, down=down))
    assert not cut.lost
    cut.begin(_names(12, 6))
    cut.wait(60)
    assert cut.lost == set(_names(12, 6))
    assert cut.state.nodes["n06"].liveness.lost_by == "slurm"
    assert "slurm does not hear it either" in cut.state.nodes["n06"].reason
    assert not cut.finding


def test_an_operator_has_no_node_taken_for_lost_that_is_heard() -> None:
    cut = Cut(_without_domains(12))
    cut.tell(events.NodeDeclaredLost("n03", "ann", "wrong rack"))
    assert not cut.lost
    assert "everstep isolate n03" in quorum.loss_problem(cut.state, cut.state.nodes["n03"])


def test_a_plan_leaves_out_who_is_doubtful() -> None:
    story = Story(nodes=12, settings=SETTINGS)
    story.run()
    for node in ("n2", "n3", "n4"):
        story.join(node)
    story.tell(events.NodeDisconnected("n2"))
    story.tell(events.TimerDue("confirm/n2"), after_s=2)
    job = story.core.state.newest("j")
    able = [node.name for node in planning.candidates(story.core.state, job)]
    assert able == ["n0", "n1", "n3", "n4"]
    story.exit_rank("n1")
    story.stop_all()
    assert job.state is JobState.REPLANNING
    assert sorted(job.generation.members) == ["n0", "n1"]
