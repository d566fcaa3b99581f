"""The page of a report: its numbers are those of the account, and hostile words stay words."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_cli.report import bars, timeline, waterfall
from everstep_cli.report.account import (
    FALLING,
    Account,
    IncidentAccount,
    Note,
    Period,
    Ratio,
    Slice,
)
from everstep_cli.report.page import headline, numbers, page
from everstep_cli.report.svg import FILLS, legend
from everstep_controller.core.accounting.categories import Category, Group

_NS = 1_000_000_000
_BEGIN = 1_793_000_000 * _NS
_HOSTILE = "<script>alert(1)</script>\x1b[2J\"'&]]>\x00\u202e"


def incident(
    number: int, cause: str = "process", cost: float = 10.0, node: str = ""
) -> IncidentAccount:
    """Return an incident a hundred seconds after the one before."""
    onset_ns = _BEGIN + number * 100 * _NS
    return IncidentAccount(
        id=f"train-1.{number}",
        onset_ns=onset_ns,
        over_ns=onset_ns + int(cost * _NS),
        cause=cause,
        node=node,
        sentence="rank 3 was killed by signal 9",
        stages=(Slice("inc.detect", cost / 4), Slice("inc.restore", cost * 3 / 4)),
    )


def account(*incidents: IncidentAccount, **other: object) -> Account:
    """Return an account of 1,000 seconds, of which failures took 20 and slow steps 30."""
    fields: dict[str, object] = {
        "subject": "Job train",
        "begin_ns": _BEGIN,
        "end_ns": _BEGIN + 1000 * _NS,
        "unit": "wall clock",
        "slices": (
            Slice("productive", 950.0, "steps"),
            Slice("slow.unattributed", 30.0),
            Slice("inc.restore", 20.0),
        ),
        "incidents": incidents,
    }
    return Account(**(fields | other))  # type: ignore[arg-type]


def test_the_headline_says_it_all() -> None:
    two = account(incident(1, "node", 15.0), incident(2), incident(3, "operator", 50.0))
    assert headline(two) == (
        "Of 16 min 40 s of wall clock, 98.0 % were training. 2 failures cost 25.0 s, 2.5 % of it;"
        " the most by node: 15.0 s."
    )
    assert headline(account()).endswith("Nothing has failed.")
    assert dict((name, value) for value, name in numbers(two))["failures"] == "2"


def test_planned_work_is_no_failure_and_costs_are_summed_by_cause_and_node() -> None:
    found = account(
        incident(1, "node", 15.0, "n1"), incident(2, "node", 5.0, "n2"), incident(3, "operator"),
        incident(4, "process", 30.0),
    )  # fmt: skip
    assert found.cost_by_cause() == [("process", 1, 30.0), ("node", 2, 20.0)]
    assert found.cost_by_node() == [("n1", 1, 15.0), ("n2", 1, 5.0)]


@given(st.lists(st.tuples(st.sampled_from(list(Category)), st.floats(0, 1e7)), max_size=20))
def test_a_waterfall_falls_from_all_time_to_training(told: list[tuple[Category, float]]) -> None:
    found = account(slices=[Slice(category.value, seconds) for category, seconds in told])
    ends = [rect for rect in _rects(waterfall.waterfall(found)) if rect[2] > 0]
    assert sum(one.seconds for one in found.falling()) == pytest.approx(
        found.seconds - found.productive
    )
    for low, _, width in ends[1:]:
        assert low >= 430 - 0.01
        assert low + width <= 960 - 140 + 1


def _rects(picture: str) -> list[tuple[float, float, float]]:
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^/]*?>', picture)
    return [(float(x), float(y), float(width)) for x, y, width in found]


def test_what_is_lost_in_a_good_job_is_seen_all_the_same() -> None:
    slices = (Slice("productive", 99_950.0), Slice("inc.restore", 50.0))
    drawn = waterfall.waterfall(account(slices=slices))
    assert "The axis begins at 99.9 %." in drawn
    assert max(width for _, _, width in _rects(drawn)[1:2]) > 190


@pytest.mark.parametrize("number", [0, 1, 466])
def test_every_picture_is_well_formed(number: int) -> None:
    periods = [
        Period(_BEGIN + n * 3600 * _NS, _BEGIN + (n + 1) * 3600 * _NS, (Slice("productive", 3600),))
        for n in range(number)
    ]
    found = account(*(incident(n, node=_HOSTILE) for n in range(number)), periods=periods)
    for picture in (
        waterfall.waterfall(found),
        timeline.timeline(found),
        timeline.ratio_strip(found),
        bars.incident_bars(found.failures),
        bars.cost_bars("by node", found.cost_by_node()),
        legend([(stage.name, bars.stage_fill(stage.name)) for stage in found.slices], 960),
    ):
        root = ET.fromstring(picture)
        assert root.attrib["role"] == "img"
        assert root[0].tag.endswith("title")


def test_hostile_words_stay_words() -> None:
    note = Note(_BEGIN, _HOSTILE, _HOSTILE)
    hostile = IncidentAccount(
        id=_HOSTILE, onset_ns=_BEGIN, over_ns=0, cause=_HOSTILE, node=_HOSTILE, sentence=_HOSTILE,
        verdict=_HOSTILE, stages=(Slice(_HOSTILE, 1.0, _HOSTILE),),
    )  # fmt: skip
    told = page(
        account(
            hostile,
            subject=_HOSTILE,
            slices=(Slice(_HOSTILE, 1.0, _HOSTILE),),
            ratios=(Ratio(_HOSTILE, 0.5, _HOSTILE, _HOSTILE),),
            facts=((_HOSTILE, _HOSTILE),),
            acquitted=(note,),
            held_back=(note,),
            definitions=(_HOSTILE,),
        ),
        _BEGIN,
        "1.0",
    )
    assert "<script" not in told
    assert not set(told) & {"\x1b", "\x00"}
    assert told.count("&lt;script&gt;") >= 12


def test_a_page_needs_nothing_else_and_is_small_with_466_incidents() -> None:
    told = page(account(*(incident(n) for n in range(466))), _BEGIN, "1.0")
    assert not re.findall(r" (?:src|href)=|url\((?!#)|@import", told)
    assert "default-src 'none'" in told
    assert len(told) < 2_000_000
    assert told.count("<tr id=") == 466


def test_each_picture_has_its_numbers_in_a_table_too() -> None:
    period = Period(_BEGIN, _BEGIN + 3600 * _NS, (Slice("productive", 3500), Slice("gap", 100)), 2)
    told = page(account(incident(1), periods=(period,)), _BEGIN, "1.0")
    for number in ("15 min 50 s", "97.22 %", "10.0 s"):
        assert f'<td class="number">{number}</td>' in told


def test_every_group_is_taken_off_and_has_a_fill_of_its_own() -> None:
    assert {*FALLING, Group.PRODUCTIVE} == set(Group) == set(FILLS)
    assert len(set(FILLS.values())) == len(Group)


def test_two_stages_are_never_drawn_alike() -> None:
    fills = [
        bars.stage_fill(one.value) for one in Category if one.value.startswith(("inc", "lost"))
    ]
    assert len(set(fills)) == len(fills)


def test_steps_that_count_are_told_before_what_slow_ones_took_too_long() -> None:
    words = re.findall(r"<text[^>]*>([^<]+)</text>", waterfall.waterfall(account()))
    assert words.index("training: steps that count") < words.index("slow.unattributed")
    assert "16 min 20 s, 98.0 %" in words
    assert "15 min 50 s, 95.0 %" in words


def test_the_rate_of_failures_has_its_bounds_and_stages_come_in_their_order() -> None:
    told = page(account(incident(1), incident(2, cost=20.0), node_days=100.0), _BEGIN, "1.0")
    assert "20.00; 95 % sure: 2.42 to 72.25 (exact Poisson interval)" in told
    stages = told[told.index("How long the stages") :]
    assert stages.index("<td>inc.detect</td>") < stages.index("<td>inc.restore</td>")
    assert "inc.detect 2.5 s, inc.restore 7.5 s" in told
