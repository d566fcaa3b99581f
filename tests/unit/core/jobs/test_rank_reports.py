"""Reports of ranks that a handler keeps: by kind and rank, in every snapshot of the state."""

from copy import deepcopy

import msgspec

from everstep_common.reports import DataRange, RollbackAsked
from everstep_controller.core.model.rank_reports import RankReports
from everstep_controller.core.model.state import State
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_decisions import Story


def asked(rank: int, step: int) -> RollbackAsked:
    """Return a report of a rank."""
    skip = DataRange(step, step + 1)
    return RollbackAsked(generation=1, rank=rank, step=step, reason="loss is nan", skip=skip)


def kept(state: State) -> RankReports:
    """Return what is kept of the generation that runs."""
    return state.newest("j").generation.rank_reports


def test_the_newest_report_of_each_rank_is_kept() -> None:
    reports = RankReports([asked(0, 5), asked(3, 5), asked(0, 9)])
    assert reports.by_rank(RollbackAsked) == {0: asked(0, 9), 3: asked(3, 5)}
    assert list(reports) == [asked(0, 9), asked(3, 5)]
    assert RankReports().by_rank(RollbackAsked) == {}


def test_a_snapshot_of_the_state_holds_them_and_a_new_generation_has_none() -> None:
    story = Story()
    story.run()
    kept(story.core.state).keep(asked(1, 7))
    again = decode_state(encode(story.core.state))
    assert kept(again) == kept(story.core.state) == deepcopy(kept(again))
    assert kept(again) != RankReports()
    assert kept(again).by_rank(RollbackAsked) == {1: asked(1, 7)}
    generation = story.core.state.newest("j").generation.number
    story.exit_rank("n0")
    story.stop_all()
    assert story.core.state.newest("j").generation.number == generation + 1
    assert kept(story.core.state) == RankReports()


def test_a_kind_that_this_version_does_not_know_is_left_out() -> None:
    story = Story()
    story.run()
    kept(story.core.state).keep(asked(1, 7))
    told = encode(story.core.state).replace(b'["RollbackAsked",', b'["SomethingElse",')
    assert msgspec.json.decode(told)
    assert kept(decode_state(told)) == RankReports()
