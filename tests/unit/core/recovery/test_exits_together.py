"""Ends of ranks in one row a node: blame and incident are those of a row for each end."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.model.node import Origin
from everstep_controller.journal.codec import decode_event, encode, kind_of
from everstep_controller.records.exit_rows import ExitRows
from unit.core.test_decisions import S, Story

_KINDS = ("exception", "collective", "crash", "oom", "import")
# Node, rank on it, kind, and the milliseconds in which the ranks die: no two at once.
_Died = st.tuples(st.sampled_from(("n0", "n1")), st.integers(0, 3), st.sampled_from(_KINDS))


Exited = events.Reported[reports.RankExited]


def _ends(story: Story, died: Sequence[tuple[str, int, str]]) -> list[Exited]:
    return [
        events.Reported(
            story.origin(node),
            story.now_ns + place * S // 1000,
            reports.RankExited(
                generation=1, rank=rank, exit_code=1, signal=0, last_line="", kind=kind
            ),
            "j",
        )
        for place, (node, rank, kind) in enumerate(died)
    ]


def _rows(told: Sequence[Exited]) -> list[events.Event]:
    """Return what an intake would journal within one tick, as the journal gives it back."""
    rows, at_once = ExitRows(), []
    for event in told:
        if not rows.hold(event):
            at_once.append(event)
    held = [row.event for node in rows.nodes() for row in rows.take_node(node)]
    journaled = [decode_event(kind_of(event), encode(event)) for event in (*at_once, *held)]
    return [event for row in journaled for event in events.each_event(row)]


def _outcome(story: Story) -> object:
    job = story.core.state.newest("j")
    incident = story.incidents[-1]
    return (
        [
            (death.node, death.at_ns, death.exit.rank, death.exit.kind)
            for death in job.recovery.deaths
        ],
        (incident.cause, incident.node, incident.onset_ns, incident.message),
        [(one.remedy, one.node, one.sentence) for one in job.recovery.judgements],
        (job.state, job.reason, tuple(job.generation.members)),
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(_Died, min_size=1, max_size=12, unique_by=lambda one: one[:2]))
def test_both_forms_are_judged_alike(died: list[tuple[str, int, str]]) -> None:
    alone, together = Story(), Story()
    for story in (alone, together):
        story.run()
        ends = _ends(story, died)
        story.now_ns += S
        for event in ends if story is alone else _rows(ends):
            story.tell(event)
        story.stop_all()
    assert _outcome(alone) == _outcome(together)


def _exit(
    sequence: int, rank: int, at_ns: int, last_line: str = ""
) -> events.Reported[reports.RankExited]:
    report = reports.RankExited(
        generation=1, rank=rank, exit_code=1, signal=0, last_line=last_line, at_boot_ns=at_ns
    )
    return events.Reported(Origin("n0", "box", sequence), at_ns, report, "j")


def test_equal_ends_of_a_node_are_one_row_with_the_earliest_whole() -> None:
    rows = ExitRows()
    assert not rows.hold(_exit(1, 0, 50))
    for sequence, rank, at_ns, line in ((2, 3, 70, ""), (3, 1, 60, ""), (4, 2, 65, "other")):
        assert rows.hold(_exit(sequence, rank, at_ns, line))
    (row,) = rows.take_node("n0")
    assert isinstance(row.event, events.RanksExited)
    same, other = row.event.exits
    assert (same.ranks, same.at_ns, same.report.rank) == ((3, 1), (70, 60), 1)
    assert (other.ranks, other.at_ns) == ((2,), (65,))
    assert [origin.sequence for origin in row.origins] == [2, 3, 4]
    assert row.event.origin.sequence == 4
    assert rows.take_node("n0") == []
    assert rows.nodes() == []


@pytest.mark.parametrize("generation", [1, 2])
def test_the_first_end_of_a_generation_waits_for_nobody(generation: int) -> None:
    rows = ExitRows()
    for number in range(1, generation + 1):
        report = reports.RankExited(generation=number, rank=0, exit_code=1, signal=0, last_line="")
        first = events.Reported(Origin("n0", "box", number), 0, report, "j")
        assert not rows.hold(first)
        assert rows.hold(first)
