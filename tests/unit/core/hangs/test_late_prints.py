"""10,000 prints that come late, of jobs that train on: no job is ever said to stand still."""

import random
from collections.abc import Iterator

import pytest

from everstep_agent.jobs.standing.stand_still import StandStill
from everstep_common.hangs.reports.verdict import HangClass
from everstep_common.launcher_messages import RanksWatched
from everstep_common.reports import RanksStandStill
from everstep_controller.core import actions, events
from unit.core.hangs.test_hang_decisions import ENFORCED
from unit.core.hangs.test_response import seen
from unit.core.jobs.test_stalls import StillStory, told
from unit.core.test_decisions import S

_SEEDS, _PRINTS = 30, 800
# In some jobs nearly each print, in others one in fifty.
_SHARES = (1.0, 0.3, 0.02)
# A pipe or a file system keeps a print for so long, and all that come after it.
_LATE_S = 8.0
# A look at ranks that train is answered so soon.
_LOOK_S = 0.7


class LatePrints(StillStory):
    """A job of two nodes that trains: the agents' judges, and the core that hears them.

    The agent beside rank 0 sees steps when they are printed, the other one none. ``blind``: their
    launchers see no collectives, and each node prints.
    """

    def __init__(self, seed: int, *, blind: bool) -> None:
        super().__init__(settings=ENFORCED)
        self.chance = random.Random(seed)
        self.blind = blind
        self.begin()
        self.judges = {"n0": StandStill(), "n1": StandStill()}
        for judge in self.judges.values():
            judge.begin(1, (0,))
        self.step_s = self.chance.uniform(0.2, 4.0)
        self.made, self.late = 4, 0
        self.share = _SHARES[seed % len(_SHARES)]
        self.words = 0
        self.told: list[tuple[str, str]] = []

    def play(self, prints: int) -> None:
        """Let so many steps be printed, each some time after it was made."""
        shown_ns = self.now_ns
        for made_ns in self._made(prints):
            is_late = self.chance.random() < self.share
            late_s = min(self.chance.lognormvariate(0.5, 1.5), _LATE_S) if is_late else 0.0
            self.late += is_late
            shown_ns = max(shown_ns, made_ns + int(late_s * S))
            self._live(shown_ns)
            self.made += 1
            for judge in self.judges.values() if self.blind else [self.judges["n0"]]:
                judge.add_step(0, self.made, shown_ns)
            self.progress(self.made)

    def _made(self, prints: int) -> Iterator[int]:
        at_ns = self.now_ns
        for _ in range(prints):
            at_ns += int(self.step_s * self.chance.uniform(0.9, 1.1) * S)
            yield at_ns

    def _live(self, until_ns: int) -> None:
        while self.now_ns < until_ns:
            self.now_ns = min(self.now_ns + S, until_ns)
            self.told += told(self.wait(0))
            for node, judge in self.judges.items():
                self._judge(node, judge)
            self._look()

    def _judge(self, node: str, judge: StandStill) -> None:
        blind = "steps alone tell" if self.blind else ""
        judge.add_watched(
            RanksWatched(generation=1, at_boot_ns=self.now_ns, blind=blind), self.now_ns
        )
        word = judge.judge(self.now_ns)
        if word is not None:
            self.words += isinstance(word, RanksStandStill)
            at_ns = word.since_boot_ns if isinstance(word, RanksStandStill) else self.now_ns
            self._take(self.tell(events.Reported(self.origin(node), at_ns, word, "j"), 0))

    def _look(self) -> None:
        hang = self.job.hang
        if hang.found_ns and hang.seen is None and self.now_ns >= hang.found_ns + _LOOK_S * S:
            found = events.HangJudged(self.job.id, 1, "", seen(HangClass.NO_WAIT, looks=1))
            self._take(self.tell(found, 0))

    def _take(self, done: list[actions.Action]) -> None:
        self.told += told(done)


@pytest.mark.parametrize("blind", [False, True], ids=["collectives", "steps alone"])
def test_no_late_print_of_ten_thousand_is_a_stall(blind: bool) -> None:
    late = words = 0
    for seed in range(_SEEDS):
        story = LatePrints(seed, blind=blind)
        story.play(_PRINTS)
        late, words = late + story.late, words + story.words
        assert not [one for one in story.told if one[0] == "JobStalled"], seed
    print(f"{late} late prints, {words} times a node has said that its ranks stand still")
    assert late > 10_000
    assert bool(words) is blind, "where collectives tell, a print says nothing"
