"""Many agents that fall silent at once: one finding that says what it is, and not one each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from everstep_common.judging.findings import Finding
from everstep_common.reports import TcpAnswer
from everstep_controller.core import actions, events
from everstep_controller.core.nodes import outage
from everstep_controller.core.nodes.outage import AGENTS_CUT_OFF, FEW, MANY
from everstep_controller.journal.codec import decode_state, encode
from everstep_controller.runtime.controller_findings import ShellTrouble, open_controller_findings
from unit.core.nodes.test_quorum import SETTINGS, Cut

RETURN_S = SETTINGS.agent_return_ns / 1e9


class Outage(Cut):
    """A fleet of which the streams of many nodes end, while peers hear something of them."""

    def __init__(self, domains: Mapping[str, str]) -> None:
        # What peers that are asked hear of a node behind the cut.
        self.udp, self.tcp = True, TcpAnswer.ACCEPTED
        self.said: list[actions.Announce] = []
        super().__init__(dict(domains), replace(SETTINGS))

    def tell(self, event: events.Event) -> None:
        """Tell the core something, have those who can answer what it asks, and keep what it says.

        Whoever is asked has a stream.
        """
        done = self.story.core.handle(event, self.story.now_ns)
        self.said += [one for one in done if isinstance(one, actions.Announce)]
        for action in done:
            match action:
                case actions.ConfirmSilence(node=asked, peer=peer) if asked not in self.behind:
                    answer = events.PeerJudged(asked, peer, action.id, udp=self.udp, tcp=self.tcp)
                    self.tell(answer)
                case actions.CallRoll():
                    heard = len(set(self.state.nodes) - self.behind)
                    self.tell(events.RollCalled(action.id, heard))
                case _:
                    pass

    @property
    def told(self) -> list[Finding]:
        """Return the findings of the controller about itself."""
        found = open_controller_findings(self.state, ShellTrouble(), lambda *_: 0)
        return [held.finding for held in found]

    @property
    def told_alone(self) -> list[str]:
        """Return the nodes of which a finding says that their agent is away."""
        return sorted(name for name, node in self.state.nodes.items() if node.health.findings)


def _racks(count: int, size: int, path: str = "rack-{}") -> dict[str, str]:
    return {f"n{number:04}": path.format(number // size) for number in range(count)}


def _first(nodes: Mapping[str, str], count: int) -> list[str]:
    return sorted(nodes)[:count]


def _cut(nodes: Mapping[str, str], behind: Sequence[str]) -> Outage:
    """Return a fleet with an outage that is due to be told."""
    cut = Outage(nodes)
    cut.begin(behind)
    cut.wait(RETURN_S + 1)
    return cut


def test_500_cut_streams_are_one_finding_that_says_where_they_are() -> None:
    nodes = _racks(1200, 100)
    cut = _cut(nodes, _first(nodes, 500))
    (finding,) = cut.told
    assert finding.condition == AGENTS_CUT_OFF.name
    assert finding.message == (
        "500 of 1200 agents are away since about the same time: the network of rack-0, rack-1, "
        "rack-2, rack-3 and 1 more"
    )
    assert finding.evidence == (
        "their peers hear them; 100 of 100 in rack-0, 100 of 100 in rack-1, 100 of 100 in rack-2, "
        "100 of 100 in rack-3 and 1 more; n0000, n0001, n0002, n0003 and 496 more"
    )
    assert "everstep nodes --state doubtful" in finding.rule
    assert cut.told_alone == []
    assert [one.subject for one in cut.said if one.reason == AGENTS_CUT_OFF.name] == ["controller"]


def test_one_rack_is_named_with_the_command_that_lists_it() -> None:
    nodes = _racks(64, 16)
    (finding,) = _cut(nodes, _first(nodes, 16)).told
    assert "the network of rack-0" in finding.message
    assert "'everstep nodes --state doubtful --domain rack-0' lists them" in finding.rule


def test_racks_of_one_pod_are_told_as_the_pod() -> None:
    nodes = _racks(32, 4, "pod-1/rack-{}") | {
        f"m{number:04}": f"pod-2/rack-{number // 4}" for number in range(64)
    }
    (finding,) = _cut(nodes, [name for name in nodes if name.startswith("n")]).told
    assert "the network of pod-1" in finding.message
    assert "32 of 32 in pod-1" in finding.evidence


def test_most_of_the_fleet_that_peers_hear_points_to_the_controllers_own_link() -> None:
    nodes = _racks(40, 8)
    (finding,) = _cut(nodes, _first(nodes, 30)).told
    assert "this controller's own link" in finding.message


def test_some_of_every_rack_are_no_racks_fault() -> None:
    nodes = _racks(80, 8)
    (finding,) = _cut(nodes, sorted(nodes)[::4]).told
    assert "the network between them and this controller" in finding.message


def test_agents_that_have_ended_point_to_what_they_have_alike() -> None:
    nodes = _racks(40, 8)
    cut = Outage(nodes)
    cut.udp, cut.tcp = False, TcpAnswer.REFUSED
    cut.begin(sorted(nodes)[::4])
    cut.wait(RETURN_S + 1)
    (finding,) = cut.told
    assert "something that all of these agents have alike" in finding.message
    assert "'journalctl -u everstep-agent' on n0000" in finding.rule


@pytest.mark.parametrize("count", [1, FEW - 1])
def test_a_few_are_told_one_by_one(count: int) -> None:
    nodes = _racks(40, 8)
    cut = _cut(nodes, _first(nodes, count))
    assert cut.told == []
    assert cut.told_alone == _first(nodes, count)


@pytest.mark.parametrize("count", [FEW, MANY - 1])
def test_a_few_of_one_rack_that_went_at_once_are_one_finding_that_names_them_all(
    count: int,
) -> None:
    nodes = _racks(40, 8)
    cut = _cut(nodes, _first(nodes, count))
    (finding,) = cut.told
    assert finding.message.startswith(f"{count} of 40 agents are away")
    assert f"{count} of 8 in rack-0; {', '.join(_first(nodes, count))}" in finding.evidence
    assert cut.told_alone == []
    assert len([one for one in cut.said if one.reason == AGENTS_CUT_OFF.name]) == 1


@pytest.mark.parametrize("apart_s", [5, 10])
def test_a_few_that_went_seconds_after_one_another_are_told_together_only_if_all_are_near(
    apart_s: int,
) -> None:
    nodes = _racks(40, 8)
    cut = Outage(nodes)
    for name in _first(nodes, FEW):
        cut.begin([name])
        cut.wait(apart_s)
    cut.wait(RETURN_S + 1)
    together = 2 * apart_s <= 15
    assert len(cut.told) == together
    assert cut.told_alone == ([] if together else _first(nodes, FEW))


def test_those_that_stay_away_of_many_are_one_finding_while_they_are_a_few() -> None:
    nodes = _racks(64, 16)
    away = _first(nodes, 16)
    cut = _cut(nodes, away)
    cut.behind -= set(away[FEW:])
    for name in away[FEW:]:
        cut.say_hello(name, nodes[name])
    cut.wait(RETURN_S + 60)
    (finding,) = cut.told
    assert finding.message.startswith(f"{FEW} of 64")
    assert cut.told_alone == []


def test_nothing_is_done_about_one_of_many_and_it_is_told_when_few_become_many() -> None:
    nodes = _racks(60, 8)
    cut = _cut(nodes, _first(nodes, FEW))
    assert not outage.is_among_many(cut.state, "n0000")
    cut.begin(_first(nodes, MANY)[FEW:])
    cut.wait(RETURN_S + 1)
    assert outage.is_among_many(cut.state, "n0000")
    assert [one.reason for one in cut.said].count(AGENTS_CUT_OFF.name) == 2
    assert len(cut.told) == 1


def test_as_many_that_went_one_after_another_are_told_one_by_one() -> None:
    nodes = _racks(60, 8)
    cut = Outage(nodes)
    for name in _first(nodes, 2 * MANY):
        cut.begin([name])
        cut.wait(61)
    assert cut.told == []
    assert cut.told_alone == _first(nodes, 2 * MANY)


def test_it_is_over_when_they_are_back_and_those_that_stay_away_are_told_of_then() -> None:
    nodes = _racks(64, 16)
    away = _first(nodes, 16)
    cut = _cut(nodes, away)
    back = away[FEW - 1 :]
    cut.behind -= set(back)
    for name in back:
        cut.say_hello(name, nodes[name])
    cut.wait(RETURN_S - 5)
    assert cut.told_alone == [], "they may be on their way"
    cut.wait(20)
    assert cut.told == []
    assert cut.told_alone == away[: FEW - 1]
    said = [one.message for one in cut.said if one.reason == f"{AGENTS_CUT_OFF.name}Cleared"]
    assert len(said) == 1
    assert cut.state.outage is None


def test_it_is_over_without_a_word_more_when_all_are_back() -> None:
    nodes = _racks(64, 16)
    cut = _cut(nodes, _first(nodes, 16))
    cut.heal()
    cut.wait(60)
    assert (cut.told, cut.told_alone, cut.state.outage) == ([], [], None)


def test_an_agent_that_hangs_during_an_outage_is_told_of_alone() -> None:
    nodes = _racks(64, 16)
    cut = _cut(nodes, _first(nodes, 16))
    cut.wait(300)
    cut.begin(["n0050"])
    cut.wait(RETURN_S + 1)
    assert cut.told_alone == ["n0050"]
    (finding,) = cut.told
    assert finding.message.startswith("16 of 64")


def test_a_second_outage_is_told_with_the_first_while_that_lasts() -> None:
    nodes = _racks(96, 16)
    cut = _cut(nodes, _first(nodes, 16))
    cut.wait(300)
    cut.begin([name for name, rack in nodes.items() if rack == "rack-4"])
    cut.wait(RETURN_S + 1)
    (finding,) = cut.told
    assert "32 of 96" in finding.message
    assert "rack-0, rack-4" in finding.message
    assert cut.told_alone == []


def test_what_was_told_of_an_agent_alone_stays_so() -> None:
    nodes = _racks(64, 16)
    cut = _cut(nodes, ["n0000"])
    cut.begin(_first(nodes, 16)[1:])
    cut.wait(RETURN_S + 1)
    assert cut.told_alone == ["n0000"]
    (finding,) = cut.told
    assert finding.message.startswith("15 of 64")


def test_an_outage_is_in_what_a_journal_keeps_and_an_older_one_has_none() -> None:
    nodes = _racks(64, 16)
    cut = _cut(nodes, _first(nodes, 16))
    assert decode_state(encode(cut.state)) == cut.state
    older = encode(replace(cut.state, outage=None)).replace(b'"outage":null,', b"")
    assert decode_state(older).outage is None


def test_a_controller_that_starts_anew_tells_it_anew() -> None:
    nodes = _racks(64, 16)
    cut = _cut(nodes, _first(nodes, 16))
    cut.tell(events.ControllerStarted("0.1.0"))
    for name in sorted(nodes)[16:]:
        cut.say_hello(name, nodes[name])
    cut.wait(SETTINGS.startup_grace_ns / 1e9 + RETURN_S + 60)
    (finding,) = cut.told
    assert finding.message.startswith("16 of 64")
    assert cut.told_alone == []


def test_a_node_of_an_outage_may_be_removed_and_is_no_more_of_it() -> None:
    nodes = _racks(64, 16)
    cut = _cut(nodes, _first(nodes, 16))
    cut.tell(events.NodeRemoved("n0003", "ann", "sold"))
    assert "n0003" not in cut.state.nodes
    assert not outage.is_among(cut.state, "n0003")
    (finding,) = cut.told
    assert finding.message.startswith("15 of 63")


def test_where_the_controller_holds_most_it_says_only_that_it_is_cut_off() -> None:
    nodes = _racks(40, 8)
    cut = Outage(nodes)
    cut.udp, cut.tcp = False, TcpAnswer.SILENT
    cut.begin(_first(nodes, 30))
    cut.wait(120)
    assert [one.condition for one in cut.told] == ["ControllerCutOff"]
    assert cut.told_alone == []
