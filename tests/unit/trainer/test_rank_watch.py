"""What a launcher tells of its ranks when some of them have ended, or are ending."""

from pathlib import Path

from everstep.launch.inspection.rank_watch import RankWatch
from everstep.rank.interpreter import everstep_rank_page as page
from everstep.rank.interpreter.everstep_frontier_watch import FrontierWatch
from everstep_common.launcher_messages import RanksWatched

_S = 10**9


class _World:
    """A launcher with two ranks that complete a collective every half second, and then none."""

    def __init__(self, proc: Path) -> None:
        self.told: list[object] = []
        self.now_ns, self.done, self.running = 1000 * _S, 0, {0: 71, 1: 72}
        self.watch = RankWatch(
            self.told.append, lambda: self.running, lambda: self.now_ns, proc=proc
        )
        self.watch.begin(1, [0, 1], 2)
        self.pages = pages = [
            page.Page(self.watch.environment(rank), page.WATCH_PID) for rank in (0, 1)
        ]
        self.groups = [True, True]
        has_groups = [lambda: self.groups[0], lambda: self.groups[1]]
        read = lambda: (self.done, self.done)  # noqa: E731
        self.ranks = [
            FrontierWatch(one, read, dict, has) for one, has in zip(pages, has_groups, strict=True)
        ]

    def live(self, seconds: int, *, moves: bool) -> None:
        for _ in range(2 * seconds):
            self.now_ns += _S // 2
            self.done += moves
            for rank in self.ranks:
                rank.read_once(self.now_ns)
            self.watch.advance({0: self.done})

    @property
    def newest(self) -> RanksWatched:
        newest = self.told[-1]
        assert isinstance(newest, RanksWatched)
        return newest


def test_ranks_that_stand_still_while_all_of_them_run_are_told(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.live(40, moves=True)
    world.live(8, moves=False)
    assert world.newest.still_since_ns > 0
    world.watch.end()


def test_what_ranks_print_is_not_told_of_those_that_tell_their_steps_themselves(
    tmp_path: Path,
) -> None:
    world = _World(tmp_path)
    world.live(10, moves=True)
    assert world.newest.printed[0] > 0
    for one in world.pages:
        one.words[page.STEP], one.words[page.STEP_AT] = world.done, world.now_ns
    world.live(10, moves=True)
    assert world.newest.printed == ()
    world.watch.end()


def test_when_one_of_them_has_ended_the_others_make_no_collective_any_more(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.live(40, moves=True)
    del world.running[1]
    world.live(30, moves=False)
    assert world.newest.still_since_ns == 0
    assert world.newest.pause == "the end of the script"
    world.watch.end()


def test_ranks_whose_scripts_are_over_do_not_stand_still_while_they_are_taken_down(
    tmp_path: Path,
) -> None:
    world = _World(tmp_path)
    world.live(40, moves=True)
    world.ranks[1].end_script()
    world.live(30, moves=False)
    assert world.newest.still_since_ns == 0
    assert world.newest.pause == "the end of the script"
    assert "the end of the script" in world.newest.phases
    world.watch.end()


def test_nor_do_ranks_that_have_all_destroyed_their_process_groups(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.live(40, moves=True)
    world.groups = [False, False]
    world.live(30, moves=False)
    assert (world.newest.still_since_ns, world.newest.pause) == (0, "the end of the script")
    world.watch.end()


def test_others_that_wait_for_a_rank_that_has_left_too_early_are_told(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.live(40, moves=True)
    world.groups = [False, True]
    world.live(8, moves=False)
    assert world.newest.still_since_ns > 0
    assert world.watch.facts(0).shown == "the end of the script"
    assert world.watch.facts(1).shown == ""
    world.watch.end()


def test_groups_that_are_made_anew_end_the_end(tmp_path: Path) -> None:
    world = _World(tmp_path)
    world.live(40, moves=True)
    world.groups = [False, False]
    world.live(10, moves=False)
    world.groups = [True, True]
    world.live(8, moves=True)
    assert world.newest.pause == ""
    world.live(8, moves=False)
    assert world.newest.still_since_ns > 0
    world.watch.end()
