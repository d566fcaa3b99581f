"""What a rank learns of its collectives, and what is made of it when they stand still."""

import random
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from everstep.launch.inspection.frontier_judge import FrontierJudge, NoProgressVerdict
from everstep.launch.inspection.rank_pages import Frontier, RankFacts, RankPages, rank_facts
from everstep.rank.interpreter import everstep_rank_page as page
from everstep.rank.interpreter.everstep_frontier_watch import (
    WARM_MOVES,
    FrontierWatch,
    GapMemory,
    activity_of,
    frontier_of,
)

_S = 10**9
_HALF = _S // 2


class Rank:
    """A rank in virtual time that is read twice a second."""

    def __init__(self) -> None:
        self.pages = RankPages([0])
        self.page = page.Page(self.pages.environment(0), page.WATCH_PID)
        self.now_ns, self.done = 1000 * _S, 0.0
        read = lambda: (int(self.done), int(self.done))  # noqa: E731
        self.frames: dict[int, FrameType] = {}
        self.watch = FrontierWatch(self.page, read, lambda: self.frames)

    def live(self, seconds: float, every_s: float = 0.5, *, pauses: int = 0) -> None:
        """Let it complete a collective every so many seconds; 0: none."""
        end_ns = self.now_ns + int(seconds * _S)
        self.page.words[page.PAUSES] = pauses
        while self.now_ns < end_ns:
            self.now_ns += _HALF
            if every_s:
                self.done += 0.5 / every_s
            self.watch.read_once(self.now_ns)
        self.page.words[page.PAUSES] = 0

    def facts(self) -> RankFacts:
        return self.pages.read(0, self.now_ns)

    def gap_s(self) -> float:
        frontier = self.facts().frontier
        assert frontier is not None
        return frontier.gap_ns / _S


def test_the_longest_gap_of_a_rank_is_learned_after_its_start() -> None:
    rank = Rank()
    rank.live(30)
    assert rank.gap_s() == 0.5
    rank.live(2, 2.0)
    assert rank.gap_s() == 2.0


def test_gaps_between_the_first_moves_teach_nothing() -> None:
    rank = Rank()
    rank.live(120, 30.0)  # it compiles before each of them
    assert rank.gap_s() == 0.0
    rank.live(WARM_MOVES * 0.5 + 10)
    assert rank.gap_s() == 0.5


def test_a_gap_with_a_pause_in_it_teaches_nothing() -> None:
    rank = Rank()
    rank.live(30)
    rank.live(60, 0, pauses=1)
    rank.live(1)
    assert rank.gap_s() == 0.5


def test_a_gap_is_learned_of_each_phase_in_which_the_rank_was_meanwhile() -> None:
    memory, now_ns = GapMemory(), 0
    for count in range(WARM_MOVES + 1):
        now_ns += _HALF
        memory.observe(now_ns, (count + 1, count + 1), 1 << 1, paused=False)
    memory.observe(now_ns + 4 * _S, (WARM_MOVES + 1, WARM_MOVES + 1), 1 << 2, paused=False)
    memory.observe(now_ns + 5 * _S, (99, 99), 1 << 3, paused=False)
    assert [one.longest_ns // _S for one in memory.phases[:5]] == [0, 0, 5, 5, 0]


def test_a_long_evaluation_is_no_part_of_the_rhythm_and_one_in_every_few_moves_is() -> None:
    rank = Rank()
    rank.live(60)
    for _ in range(5):
        rank.live(60, 0)
        rank.live(60)
        assert rank.gap_s() == 0.5
    for _ in range(3):
        assert rank.gap_s() == 0.5
        rank.live(9, 0)
        rank.live(5)
    assert rank.gap_s() == 9.5


def test_what_was_long_ago_is_no_part_of_the_rhythm_any_more() -> None:
    rank = Rank()
    rank.live(WARM_MOVES * 0.5)
    rank.live(1)
    rank.live(60, 0)  # before enough was known to call it anything else
    rank.live(200)
    assert rank.gap_s() == 60.5
    rank.live(512)
    assert rank.gap_s() == 0.5


def test_groups_are_counted_together() -> None:
    status = b'{"last_enqueued_collective":"%d","last_completed_collective":"%d"}'
    dump = b'{"pg_status":{"0":' + status % (7, 6) + b',"1":' + status % (3, 1) + b"}}"
    assert frontier_of(dump) == (10, 7)
    assert frontier_of(b'{"version":"2.10"}') == (0, 0)


@pytest.mark.parametrize(
    ("file", "function", "found"),
    [
        ("/site/torch/_dynamo/convert_frame.py", "_compile", 1),
        ("/site/torch/_dynamo/eval_frame.py", "_fn", 0),
        ("/site/torch/serialization.py", "save", 2),
        ("/site/safetensors/torch.py", "save_file", 2),
        ("train.py", "save", 0),
        ("/site/torch/distributed/distributed_c10d.py", "destroy_process_group", 3),
    ],
)
def test_a_stack_tells_what_a_rank_does_that_is_no_step(
    file: str, function: str, found: int
) -> None:
    code: Callable[..., FrameType] = compile_in(file, function)
    assert activity_of({1: sys._getframe(), 2: code()}) == found


def compile_in(file: str, function: str) -> Callable[..., FrameType]:
    """Return a function of this name and file that returns its own frame."""
    names: dict[str, Callable[..., FrameType]] = {}
    text = f"import sys\ndef {function}():\n    return sys._getframe()\n"
    exec(compile(text, file, "exec"), names)
    return names[function]


def test_a_rank_that_compiles_is_in_a_pause() -> None:
    rank = Rank()
    rank.live(30)
    rank.frames = {1: compile_in("/site/torch/_inductor/compile_fx.py", "compile_fx")()}
    rank.live(20, 0)
    assert rank.facts().pause == "compilation"
    rank.live(1)
    assert (rank.facts().pause, rank.gap_s()) == ("", 0.5)


# --- the launcher's judge ------------------------------------------------------------------------


def node(
    seconds: float, every_s: float, hang_s: float, steps: bool = True, pause: str = ""
) -> tuple[list[NoProgressVerdict], int]:
    """Return how one rank stands, second by second: it trains, and then nothing moves."""
    rank, judge, found, step = Rank(), FrontierJudge(), [], 0
    for _ in range(int(seconds)):
        rank.live(1, every_s)
        step += 1
        judge.judge({0: rank.facts()}, step if steps else -1, rank.now_ns)
    began_ns = rank.now_ns
    for _ in range(int(hang_s)):
        rank.live(1, 0, pauses=int(bool(pause)))
        facts = rank.facts()
        if pause:
            facts = RankFacts(pause=pause, frontier=facts.frontier)
        found.append(judge.judge({0: facts}, step if steps else -1, rank.now_ns))
    return found, began_ns


def test_collectives_that_stand_for_three_seconds_are_known_after_four() -> None:
    found, began_ns = node(30, 0.5, 6)
    assert [one.still for one in found] == [False, False, False, True, True, True]
    assert found[-1].since_ns == began_ns
    assert found[-1].usual_ns == 3 * _S


def test_a_hang_after_an_evaluation_is_known_as_soon_as_one_before_it() -> None:
    rank, judge = Rank(), FrontierJudge()
    for second in range(240):
        rank.live(1, 0 if 60 <= second < 120 or second >= 180 else 0.5)
        found = judge.judge({0: rank.facts()}, min(second, 60), rank.now_ns)
        if second in (59, 62, 150, 182):
            assert not found.still
        if second in (64, 184):
            assert found.still
            assert found.usual_ns == 3 * _S
    assert judge.learned_ns < 2 * _S, "the next generation is not made to wait for it either"


@pytest.mark.parametrize("seed", range(20))
def test_a_hang_in_steps_of_any_length_is_known_after_four_times_the_longest_gap(seed: int) -> None:
    every_s = random.Random(seed).uniform(0.05, 3.0)
    found, _ = node(150, every_s, 30)
    usual_s = found[-1].usual_ns / _S
    # Readings are half a second apart, looks a second.
    assert max(3.0, 4 * every_s) - 2.0 <= usual_s <= max(3.0, 4 * (every_s + 0.5))
    first = next(second for second, one in enumerate(found, 1) if one.still)
    # The last move was up to one gap before the hang began.
    assert first - 1.5 <= usual_s < first + every_s + 0.5


def test_nothing_is_judged_before_enough_was_learned() -> None:
    assert not any(one.still for one in node(6, 0.5, 60)[0])
    assert not any(one.still for one in node(6, 0.5, 60, steps=False)[0])


def test_what_stands_still_where_no_step_is_told_is_young_until_much_was_learned() -> None:
    young, began_ns = node(12, 0.5, 60, steps=False)
    assert [one.still for one in young[:5]] == [False, False, False, True, True]
    assert all(one.young for one in young)
    assert young[-1].since_ns == began_ns
    old = node(25, 0.5, 60, steps=False)[0]
    assert any(one.still for one in old)
    assert not any(one.young for one in [*old, *node(12, 0.5, 60)[0]])


def restarted(
    learned_ns: int, train_s: int, hang_s: int, start_gap_s: int = 0, pause: str = ""
) -> list[NoProgressVerdict]:
    """Return how a rank stands that trains for a moment after a restart, and moves no more."""
    rank, judge, found = Rank(), FrontierJudge(learned_ns), []
    for second in range(train_s):
        rank.live(1)
        judge.judge({0: rank.facts()}, second, rank.now_ns)
    for _ in range(start_gap_s):
        rank.live(1, 0)
        found.append(judge.judge({0: rank.facts()}, train_s, rank.now_ns))
    if start_gap_s:
        rank.live(1)
    for _ in range(hang_s):
        rank.live(1, 0, pauses=int(bool(pause)))
        facts = replace(rank.facts(), pause=pause)
        found.append(judge.judge({0: facts}, train_s, rank.now_ns))
    return found


def taught(seconds: int = 60, every_s: float = 0.5) -> int:
    """Return what a whole generation teaches the next."""
    rank, judge = Rank(), FrontierJudge()
    for second in range(seconds):
        rank.live(1, every_s)
        judge.judge({0: rank.facts()}, second, rank.now_ns)
    return judge.learned_ns


def test_a_hang_soon_after_a_restart_is_known_by_the_generation_before() -> None:
    found = restarted(taught(), 4, 60)
    assert [one.still for one in found].index(True) == 30
    assert found[-1].usual_ns == 30 * _S
    assert not any(one.still for one in restarted(0, 4, 60))


def test_gaps_of_its_start_are_waited_for_as_the_generation_before_had_them() -> None:
    rank, judge = Rank(), FrontierJudge()
    for second in range(60):
        rank.live(1, 0 if 4 <= second < 20 else 0.5)
        judge.judge({0: rank.facts()}, max(0, second - 20), rank.now_ns)
    assert 16 * _S <= judge.learned_ns <= 17 * _S
    found = restarted(judge.learned_ns, 4, 90)
    assert 64 <= [one.still for one in found].index(True) <= 68


def test_so_are_those_that_it_has_had_itself() -> None:
    found = restarted(taught(), 4, 90, start_gap_s=20)
    assert 20 + 80 <= [one.still for one in found].index(True) <= 20 + 86


def test_before_the_first_move_and_in_a_pause_nothing_is_judged_by_it() -> None:
    assert not any(one.still for one in restarted(taught(), 0, 200))
    assert not any(one.still for one in restarted(taught(), 4, 200, pause="evaluation"))


def test_a_generation_that_hung_at_once_hands_on_what_the_one_before_had_learned() -> None:
    judge = FrontierJudge(learned_ns := taught())
    rank = Rank()
    for second in range(40):
        rank.live(1, 0.5 if second < 4 else 0)
        judge.judge({0: rank.facts()}, 4, rank.now_ns)
    assert judge.learned_ns == learned_ns > 0
    assert taught(seconds=4) == 0


def test_a_pause_is_not_judged() -> None:
    found, _ = node(30, 0.5, 60, pause="evaluation")
    assert {(one.still, one.pause) for one in found} == {(False, "evaluation")}


def test_what_follows_a_pause_begins_with_its_end() -> None:
    rank, judge = Rank(), FrontierJudge()
    for second in range(30):
        rank.live(1)
        judge.judge({0: rank.facts()}, second, rank.now_ns)
    rank.live(60, 0, pauses=1)
    paused = RankFacts(pause="evaluation", frontier=rank.facts().frontier)
    judge.judge({0: paused}, 30, rank.now_ns)
    rank.live(2, 0)
    assert not judge.judge({0: rank.facts()}, 30, rank.now_ns).still


def test_a_launcher_that_was_stopped_itself_blames_nobody_for_that_time() -> None:
    rank, judge = Rank(), FrontierJudge()
    for second in range(30):
        rank.live(1)
        judge.judge({0: rank.facts()}, second, rank.now_ns)
    later = rank.facts()
    assert not judge.judge({0: later}, 30, rank.now_ns + 3600 * _S).still


@pytest.mark.parametrize("away_s", [6, 18, 3600])
def test_nor_does_it_say_that_ranks_go_on_which_stood_still_before_and_have_not_moved(
    away_s: int,
) -> None:
    """What it starts to read its ranks with may take a loaded machine seconds."""
    rank, judge = Rank(), FrontierJudge()
    for second in range(30):
        rank.live(1)
        judge.judge({0: rank.facts()}, second, rank.now_ns)
    began_ns = rank.now_ns
    for _ in range(6):
        rank.live(1, 0)
        judge.judge({0: rank.facts()}, 29, rank.now_ns)
    rank.live(away_s, 0)
    found = judge.judge({0: rank.facts()}, 29, rank.now_ns)
    assert (found.still, found.since_ns) == (True, began_ns)
    # Those that have moved while nobody looked are given their usual time.
    rank.live(1)
    rank.live(away_s, 0)
    assert not judge.judge({0: rank.facts()}, 29, rank.now_ns).still


def test_a_recorder_that_steps_pass_by_is_blind() -> None:
    rank, judge, found = Rank(), FrontierJudge(), NoProgressVerdict()
    for second in range(30):
        rank.live(1)
        judge.judge({0: rank.facts()}, second, rank.now_ns)
    for second in range(30, 60):
        rank.live(1, 0)
        found = judge.judge({0: rank.facts()}, second, rank.now_ns)
    assert "steps passed without a collective" in found.blind
    assert not found.still


@pytest.mark.parametrize("step_s", [4, 6, 20])
def test_ranks_whose_steps_go_on_do_not_stand_still_from_the_first_step_on_that_is_not_recorded(
    step_s: int,
) -> None:
    rank, judge, found, step = Rank(), FrontierJudge(), [], 0
    for second in range(40 * step_s):
        recorded = second < 20 * step_s
        rank.live(1, 0.5 if recorded else 0)
        step += second % step_s == 0
        found.append(judge.judge({0: rank.facts()}, step, rank.now_ns))
    unseen = found[20 * step_s + 3 * step_s :]
    assert not any(one.still for one in unseen)
    assert all("without a collective" in one.blind for one in unseen)


def test_a_rank_without_a_recorder_makes_the_node_blind() -> None:
    moving = RankFacts(frontier=Frontier(moved_at_ns=5, moves=90, gap_ns=1, gaps=80))
    found = FrontierJudge().judge({0: moving, 1: RankFacts()}, 9, 10 * _S)
    assert found.blind == "1 of 2 ranks have no recorder of their collectives"
    assert "no rank has" in FrontierJudge().judge({0: RankFacts()}, 9, 10 * _S).blind


# --- the page, which a rank can fill with anything -----------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_what_a_hostile_rank_writes_is_bounded(seed: int) -> None:
    chance = random.Random(seed)
    words = [chance.choice([0, 1, -1, 2**63 - 1, -(2**63), chance.getrandbits(40)])] * 512
    words = [chance.choice([0, -1, 2**62, chance.getrandbits(33)]) for _ in words]
    words[page.LAYOUT] = page.MAGIC
    content = bytearray(struct.pack("512q", *words))
    content[page.NAMES :] = chance.randbytes(page.BYTES - page.NAMES)
    facts = rank_facts(bytes(content), 10 * _S)
    assert facts.step is None or 0 <= facts.step <= 9 * 10**17
    assert 0 <= facts.step_at_ns <= 10 * _S
    for text in (facts.phase, facts.pause, facts.shown):
        assert len(text) <= 40
        assert text.isprintable()
    assert 0 <= facts.watch_thread <= 2**22
    assert 0 <= facts.watched_at_ns <= 10 * _S
    if facts.frontier is not None:
        assert 0 <= facts.frontier.moved_at_ns <= 10 * _S
        assert 0 <= facts.frontier.gap_ns <= 3600 * _S


def test_a_rank_tells_which_thread_watches_it_and_when_that_has_read_last() -> None:
    rank = Rank()
    rank.live(10)
    heard_ns = rank.now_ns
    assert rank.facts().watch_thread == 0  # none has begun
    rank.watch.begin()
    rank.now_ns += 4 * _S
    facts = rank.facts()
    assert (facts.watched_at_ns, facts.watch_thread) == (heard_ns, threading.get_native_id())
    rank.watch.end()
    assert rank.facts().watch_thread == 0


def test_a_page_of_another_layout_or_size_says_nothing() -> None:
    assert rank_facts(bytes(page.BYTES), 1) == RankFacts()
    other = struct.pack("512q", page.MAGIC + 1, *range(511))
    assert rank_facts(other, 1) == RankFacts()
    assert rank_facts(struct.pack("2q", page.MAGIC, 1), 1) == RankFacts()


def test_only_one_process_writes_a_part_of_a_page() -> None:
    pages = RankPages([4, 5])
    first = page.Page(pages.environment(5), page.SDK_PID)
    first.words[page.SDK_PID] = 1  # a process that lives
    with pytest.raises(page.NoPageError, match="another process"):
        page.Page(pages.environment(5), page.SDK_PID)
    first.words[page.SDK_PID] = 2**22 + 1  # one that cannot
    assert page.Page(pages.environment(5), page.SDK_PID).usable
    assert pages.read(4, 1) == RankFacts()
    pages.close()


def test_without_a_launcher_there_is_no_page() -> None:
    for environ in ({}, {page.PLACE: "/nowhere/page:0"}, {page.PLACE: "x"}):
        with pytest.raises(page.NoPageError):
            page.Page(environ, page.SDK_PID)
