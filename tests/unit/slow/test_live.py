"""Who is slow in a running job, by what its nodes tell of their ranks every 5 s."""

import math
import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from everstep_common.compute_time import STEP_BITS, ComputeTime
from everstep_common.reports import RankColumns
from everstep_common.reports.rank_columns import RankRow, pack_ranks
from everstep_controller.core.model.slowness import SlowPart
from everstep_controller.slow.live import (
    SURE_ROWS,
    LiveFinding,
    LivePlaces,
    LiveSlowness,
    news_of,
)

ROW_NS = 5 * 10**9


@dataclass
class Told:
    """A job of some nodes with ranks that work 0.2 s in a step, and those that take longer."""

    seed: int
    nodes: int = 8
    each: int = 2
    slow: dict[int, float] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    silent: tuple[int, ...] = ()
    step: int = 0
    now_ns: int = 0

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(self.seed)
        self.own = [ComputeTime() for _ in range(self.nodes * self.each)]
        names = tuple(f"n{place}" for place in range(self.nodes))
        self.places = LivePlaces(names, self.domains or ("",) * self.nodes, self.each)
        self.live = LiveSlowness(self.places)

    def train(self, rows: int, steps: int = 5) -> LiveFinding:
        finding = LiveFinding()
        for _ in range(rows):
            for _ in range(steps):
                self.complete_step()
            self.now_ns += ROW_NS
            finding = self.live.judge_told(self.columns(), self.step, self.now_ns)
        return finding

    def complete_step(self) -> None:
        self.step += 1
        for rank in range(len(self.own)):
            own_s = 0.2 * self.slow.get(rank, 1.0) * (1 + 0.01 * self.chance.standard_t(3))
            self.own[rank] = self.own[rank].add_step(max(1, int(own_s * 1e9)))

    def columns(self) -> dict[int, RankColumns]:
        return {place: self.node(place) for place in range(self.nodes)}

    def node(self, place: int) -> RankColumns:
        ranks = range(place * self.each, (place + 1) * self.each)
        rows = [
            RankRow(
                rank=rank,
                step=self.step,
                median_ms=250,
                p99_ms=300,
                since_ms=10,
                phase="",
                own=0 if rank in self.silent else self.own[rank].packed,
                role=self.roles.get(rank, ""),
            )
            for rank in ranks
        ]
        return pack_ranks("j-1", 1, rows)


@pytest.mark.parametrize("seed", range(3))
def test_one_rank_that_computes_longer_is_named_with_its_node_and_what_it_explains(
    seed: int,
) -> None:
    story = Told(seed)
    assert story.train(SURE_ROWS).parts == ()
    story.slow[5] = 1.3
    (part,) = story.train(15).parts
    assert (part.kind, part.name, part.node) == ("rank", "5", "n2")
    assert 1.2 < part.factor < 1.4
    assert part.worth_swap
    assert part.share > 0.8
    assert 95 <= part.since_step <= 120
    del story.slow[5]
    assert story.train(25).parts == ()


def test_of_equal_ranks_nobody_is_named() -> None:
    finding = Told(9).train(60)
    assert finding.parts == ()
    assert finding.is_sure
    assert (finding.telling, finding.ranks) == (16, 16)


def test_ranks_of_a_node_that_are_slow_together_are_one_part() -> None:
    story = Told(1, each=4)
    story.train(SURE_ROWS)
    story.slow |= dict.fromkeys(range(8, 12), 1.3)
    (part,) = story.train(15).parts
    assert (part.kind, part.name, part.node) == ("node", "n2", "n2")
    assert part.worth_swap


def test_a_domain_that_is_slow_is_no_node() -> None:
    story = Told(2, nodes=12, each=4, domains=("a",) * 8 + ("b",) * 4)
    story.train(SURE_ROWS)
    story.slow |= dict.fromkeys(range(32, 48), 1.3)
    parts = story.train(15).parts
    assert [(part.kind, part.name, part.node) for part in parts] == [("domain", "b", "")]


def test_a_stage_with_more_to_compute_is_compared_with_itself() -> None:
    roles = {rank: f"stage {rank // 8}" for rank in range(32)}
    story = Told(3, nodes=16, roles=roles, slow=dict.fromkeys(range(24, 32), 1.4))
    finding = story.train(30)
    assert finding.parts == ()
    assert finding.verdict is not None
    assert [one.kind.value for one in finding.verdict.imbalances] == ["stage"]


def test_ranks_that_tell_nothing_are_not_judged_and_do_not_hold_up_the_others() -> None:
    story = Told(4, silent=(3, 4), slow={5: 1.3})
    finding = story.train(15)
    assert (finding.telling, finding.ranks) == (14, 16)
    assert [part.name for part in finding.parts] == ["5"]
    nobody = Told(4, silent=tuple(range(16))).train(15)
    assert nobody == LiveFinding(ranks=16)


def test_a_row_waits_for_a_step_of_most_ranks() -> None:
    story = Told(5)
    story.train(2)
    for _ in range(10):
        assert story.live.judge_told(story.columns(), story.step).rows == 1
    assert story.train(1).rows == 2


def test_what_a_node_tells_of_other_ranks_or_in_other_shapes_counts_for_nothing() -> None:
    story = Told(6)
    story.train(3)
    columns = story.columns()
    foreign = replace(columns[0], first_rank=4)
    cut = replace(columns[1], own=columns[1].own[:5])
    wild = replace(columns[2], own=b"\xff" * 16)
    told = {**columns, 0: foreign, 1: cut, 2: wild}
    for _ in range(5):
        story.complete_step()
        assert story.live.judge_told(told, story.step).parts == ()
    assert story.live.judge_told({}, story.step).telling == 0


def test_a_count_that_goes_back_blames_nobody() -> None:
    """The ranks of one node tell 5 s and a step less each time; no process does that."""
    story = Told(7, each=1)
    for row in range(40):
        story.complete_step()
        back = 5_000_000 * (1_000 - row) << STEP_BITS | 5_000 - row
        told = {**story.columns(), 3: replace(story.node(3), own=back.to_bytes(8, "little"))}
        assert story.live.judge_told(told, story.step).parts == ()


_ODD = (0, 1, 2**40, 2**62, 2**63 - 1, 2**63, 10**18, 1 << STEP_BITS, (1 << STEP_BITS) - 1)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_ranks_tell_gives_numbers_that_can_be_shown_of_nodes_of_their_job(
    seed: int,
) -> None:
    rng = random.Random(seed)
    story = Told(seed, nodes=rng.choice([1, 2, 8]), each=rng.choice([1, 4]))
    liars = [rank for rank in range(len(story.own)) if rng.random() < 0.4]
    for row in range(40):
        story.complete_step()
        if rng.random() < 0.1:
            story.roles = {rank: rng.choice(["", "a", "b\x1b[31m"]) for rank in liars}
        told = story.columns()
        for rank in liars:
            place, at = rank // story.each, 8 * (rank % story.each)
            own = bytearray(told[place].own)
            own[at : at + 8] = rng.choice([*_ODD, rng.getrandbits(64)]).to_bytes(8, "little")
            told[place] = replace(told[place], own=bytes(own))
        step = rng.choice([story.step, story.step, 0, 2**62])
        for part in story.live.judge_told(told, step, row).parts:
            assert part.node in (*story.places.nodes, "")
            assert math.isfinite(part.factor)
            assert part.factor > 0
            assert 0 <= part.share <= 1
            assert "\x1b" not in part.sentence


def test_when_a_rank_became_slow_and_since_when_it_was_compared_is_told() -> None:
    story = Told(3)
    story.train(30)
    began_ns = story.now_ns
    story.slow[5] = 1.3
    (part,) = story.train(15).parts
    assert abs(part.began_ns - began_ns) <= 3 * ROW_NS
    assert part.compared_ns == 2 * ROW_NS


@pytest.mark.long
def test_of_a_job_that_has_run_for_hours_the_oldest_rows_are_forgotten_and_not_the_first() -> None:
    long = Told(4, nodes=4, each=1)
    finding = long.train(8200, steps=1)
    assert finding.parts == ()
    long.slow[2] = 1.5
    began_ns = long.now_ns
    (part,) = long.train(15, steps=1).parts
    assert abs(part.began_ns - began_ns) <= 3 * ROW_NS
    assert part.compared_ns == 2 * ROW_NS


def test_a_job_that_changes_its_roles_all_the_time_is_never_judged() -> None:
    story = Told(8, slow={3: 2.0})
    for row in range(40):
        story.roles = {rank: f"{row}" for rank in range(16)}
        finding = story.train(1)
        assert finding.parts == ()
        assert not finding.is_sure


def test_what_was_known_before_a_restart_holds_until_enough_was_seen() -> None:
    known = SlowPart(
        kind="rank", name="5", node="n2", factor=1.3, since_step=3, share=1.0,
        worth_swap=True, sentence="slow",
    )  # fmt: skip
    assert news_of([known], LiveFinding(rows=SURE_ROWS - 1)) is None
    assert news_of([known], LiveFinding(rows=SURE_ROWS)) == ()
    other = replace(known, name="7")
    assert news_of([known], LiveFinding(parts=(other,), rows=1)) == (known, other)
    assert news_of([known], LiveFinding(parts=(replace(known, factor=1.4),), rows=30)) is None


def test_ranks_are_compared_by_the_roles_that_their_groups_show() -> None:
    heavy = dict.fromkeys(range(8, 16), 1.4)
    learned = [f"pp{rank // 8}" for rank in range(16)]
    story = Told(1, slow=heavy)
    story.train(5)
    story.live.learn_roles(learned)
    finding = story.train(30)
    assert not finding.parts
    assert finding.rows == 30, "what was seen before compared different work"
    story.slow[9] = 1.4 * 1.3
    (part,) = story.train(30).parts
    assert part.name == "9"
    assert story.live.judge_told(story.columns(), story.step).rows == 60


def test_what_a_script_tells_of_roles_counts_before_what_groups_show() -> None:
    roles = {rank: f"stage {rank // 8}" for rank in range(16)}
    story = Told(2, slow=dict.fromkeys(range(8, 16), 1.4), roles=roles)
    story.train(10)
    story.live.learn_roles(["a", "b"] * 8)
    finding = story.train(20)
    assert finding.rows == 29
    assert finding.verdict is not None
    assert "role stage 1 takes" in finding.verdict.sentence.lower()
