"""Groups of all ranks put together: what hostile reports may cost."""

from everstep_common.hangs.judging.frontiers import frontiers_of
from everstep_common.hangs.reports.rank_report import GROUPS_MAX, GroupReport, RankHangReport

_RANKS = 64


def _report(rank: int, *descriptions: str) -> RankHangReport:
    members = f"0-{_RANKS - 1}"
    groups = tuple(GroupReport(one, members, _RANKS, 2, 1) for one in descriptions)
    return RankHangReport(rank=rank, world_size=_RANKS, groups=groups)


def test_as_many_groups_as_a_report_holds_are_all_looked_at_where_their_members_share_them() -> (
    None
):
    shared = [f"g{number}" for number in range(GROUPS_MAX)]
    found = frontiers_of({rank: _report(rank, *shared) for rank in range(_RANKS)}, _RANKS)
    assert (len(found.groups), found.left_out) == (GROUPS_MAX, 0)


def test_groups_that_each_rank_has_for_itself_do_not_take_the_square_of_the_ranks() -> None:
    own = {
        rank: _report(rank, *(f"g{rank}-{number}" for number in range(GROUPS_MAX)))
        for rank in range(_RANKS)
    }
    found = frontiers_of(own, _RANKS)
    held = sum(len(group.members) + len(group.unknown) for group in found.groups)
    assert held <= 2 * GROUPS_MAX * _RANKS
    assert found.left_out > 0
