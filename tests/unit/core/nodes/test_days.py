"""Days of nodes: every nanosecond of a node is in one state of one day."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import events
from everstep_controller.core.model.node_days import DAY_NS, NodeDay, NodeDays
from everstep_controller.core.model.settings import Settings
from everstep_controller.journal.codec import decode_state, encode
from everstep_controller.journal.history_rows import FleetDayTold
from everstep_controller.runtime.derived_history import node_days
from unit.core.test_decisions import XID, Story

HOUR = DAY_NS // 24
DAY = 20_000 * DAY_NS


def _told(days: NodeDays, now_ns: int) -> dict[int, NodeDay]:
    return {(day.begin_ns - DAY) // DAY_NS: day for day in days.until(now_ns)}


def test_a_state_counts_for_each_day_that_it_lasts_into() -> None:
    days = NodeDays()
    days.go_on(DAY + 20 * HOUR, "healthy", isolated=False)
    days.go_on(DAY + 22 * HOUR, "repairing", isolated=True)
    told = _told(days, DAY + 2 * DAY_NS + 3 * HOUR)
    assert told[0].spent_ns == {"healthy": 2 * HOUR, "repairing": 2 * HOUR}
    assert (told[1].spent_ns, told[1].isolated_ns) == ({"repairing": DAY_NS}, DAY_NS)
    assert told[2].spent_ns == {"repairing": 3 * HOUR}


def test_a_finding_counts_for_the_day_on_which_it_was_raised() -> None:
    days = NodeDays()
    days.go_on(DAY, "healthy", isolated=False)
    days.go_on(DAY + HOUR, "healthy", isolated=False)
    days.raise_finding("LinkDown", DAY + HOUR)
    days.raise_finding("LinkDown", DAY + HOUR)
    assert _told(days, DAY + 2 * HOUR)[0].findings == {"LinkDown": 2}


def _whole(days: NodeDays, now_ns: int) -> int:
    return sum(sum(day.spent_ns.values()) for day in days.until(now_ns))


_MOVES = st.lists(
    st.tuples(st.integers(0, 60 * HOUR), st.sampled_from(["healthy", "lost", "repairing"])),
    max_size=30,
)


@given(_MOVES, st.integers(0, 200 * HOUR))
def test_whenever_it_is_asked_days_are_whole_and_never_told_otherwise(
    moves: list[tuple[int, str]], later_ns: int
) -> None:
    days, now_ns, known = NodeDays(), DAY, dict[int, NodeDay]()
    for after_ns, state in [(0, "joining"), *moves]:
        now_ns += after_ns
        days.go_on(now_ns, state, isolated=state == "lost")
        for place, day in _told(days, now_ns).items():
            if day.begin_ns + DAY_NS <= now_ns:
                assert known.setdefault(place, day) == day
                assert sum(day.spent_ns.values()) == DAY_NS
                assert day.isolated_ns == day.spent_ns.get("lost", 0)
    now_ns += later_ns
    newest = list(days.until(now_ns, now_ns // DAY_NS * DAY_NS))
    assert sum(sum(day.spent_ns.values()) for day in newest) == now_ns % DAY_NS


def test_the_core_counts_states_isolation_and_findings_and_keeps_them_in_its_state() -> None:
    story = Story(5, Settings(mode=Mode.ENFORCE))
    begun_ns = story.core.state.nodes["n0"].days.since_ns
    before = _whole(story.core.state.nodes["n0"].days, begun_ns)
    story.find("n0", XID)
    cleared = reports.FindingCleared("gpu/0", XID.condition, "well")
    story.tell(events.Reported(story.origin("n0"), 0, cleared), after_s=7200)
    node = story.core.state.nodes["n0"]
    now_ns = node.days.since_ns + HOUR
    told = list(node.days.until(now_ns))
    assert _whole(node.days, now_ns) - before == now_ns - begun_ns
    assert sum(day.isolated_ns for day in told) >= 2 * HOUR
    assert [day.findings for day in told if day.findings] == [{XID.condition: 1}]
    quiet = story.core.state.nodes["n1"]
    assert not any(day.isolated_ns or day.findings for day in quiet.days.until(now_ns))
    assert decode_state(encode(story.core.state)) == story.core.state


def _fleet_day(story: Story) -> FleetDayTold:
    told = {key: one for key, _, one in node_days(story.core.state, story.now_ns, 0)}["fleet"]
    assert isinstance(told, FleetDayTold)
    return told


def test_a_node_that_is_removed_leaves_its_time_to_the_days_of_all() -> None:
    story = Story(5, Settings(mode=Mode.ENFORCE))
    before, begun_ns = _fleet_day(story), story.now_ns
    story.lose("n4")
    story.tell(events.NodeRemoved("n4", "ann", "sold"))
    assert "n4" not in story.core.state.nodes
    removed_ns = story.now_ns
    story.now_ns += HOUR
    after = _fleet_day(story)
    grown_ns = sum(after.spent_ns.values()) - sum(before.spent_ns.values())
    assert grown_ns == 5 * (removed_ns - begun_ns) + 4 * HOUR
    assert after.nodes == before.nodes == 5
    assert decode_state(encode(story.core.state)) == story.core.state
