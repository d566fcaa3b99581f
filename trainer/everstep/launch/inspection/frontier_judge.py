"""Judge of frontiers: whether the collectives of all ranks of a node stand still. Pure.

They do when none has moved for four times the longest gap of its rhythm, and 3 s at least. An
evaluation is no part of that: how long one takes is known to whoever looks at where they stand.
Nothing is judged before enough was learned, nor while a rank does what is no step. Until then, what
the generation before has learned, its start included, is taken, with much more patience. Where no
rank here tells steps, what is said first is young: it counts where others of the job make steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from everstep.launch.inspection.rank_pages import Frontier, RankFacts

LEAST_NS = 3 * 10**9
_TIMES = 4
# What the generation before has taught is not all: files may lie on another node now, uncached.
EARLY_LEAST_NS = 30 * 10**9
# A longer gap that ended well is a debugger's or a suspended node's.
_GAP_MAX_NS = 300 * 10**9
# Readings in which a rank has moved: 8 s of a start teach enough where steps are known. Where they
# are not, it may still be spreading its weights.
_MOVES = 16
_MOVES_WITHOUT_STEPS = 40
_STEPS_LEAST = 3
# A phase in which fewer gaps were seen is a new one.
_GAPS = 3
# The recorder is blind when so many steps pass it by, in a time in which it is read several times.
_BLIND_STEPS = 10
_BLIND_NS = 5 * 10**9
# One step may be told after the move that belongs to it. When more pass than ever before between
# two moves, collectives tell nothing for now: they may be in a CUDA graph from here on.
_PASSED = "steps pass without a collective that torch has recorded"
# Nobody has looked for so long: the node was suspended, or the launcher stopped.
_UNSEEN_NS = 5 * 10**9


@dataclass(frozen=True, slots=True)
class NoProgressVerdict:
    """Whether the ranks of a node make no progress, as their collectives tell."""

    # Since when none has moved, after which time that is no usual gap any more; 0: some do.
    since_ns: int = 0
    usual_ns: int = 0
    # What a rank does that is no step; "" where none does.
    pause: str = ""
    # Why collectives tell nothing here; "" where they do.
    blind: str = ""
    # When they stand still if none moves before that; 0: that is not known.
    due_ns: int = 0
    # So little was learned that they may still spread their weights, unless the job makes steps.
    young: bool = False

    @property
    def still(self) -> bool:
        """Return whether all of them stand still."""
        return self.since_ns > 0


class FrontierJudge:
    """Judge of one generation's ranks on a node; it is asked about once a second."""

    def __init__(self, learned_ns: int = 0) -> None:
        """``learned_ns``: the longest gap of the generation before; 0: none is known."""
        self._before_ns = learned_ns
        # The longest gap of all its ranks since the first move, when that was, and whether enough
        # was learned to judge by it.
        self._longest_ns = self._newest_ns = 0
        # The longest gap in the rhythm of any of them.
        self._rhythm_ns = 0
        self._taught = False
        self._first_step = -1
        # When a collective was last seen to move, as the recorder told, and the newest step then.
        self._moved_ns = -1
        self._seen_ns = 0
        self._step_at_move = -1
        # So many steps were told between two moves, at most.
        self._steps_between = 1
        self._blind = ""
        self._judged_ns = 0
        # What was before says nothing: a pause, or a time in which nobody looked.
        self._from_ns = 0
        # The newest move when they were last found to stand still; -1: they were not.
        self._still_at_ns = -1

    @property
    def learned_ns(self) -> int:
        """Return the longest gap for the generation after it; that of the one before, if young."""
        if not self._taught:
            return self._before_ns
        return max(1, self._longest_ns, self._rhythm_ns)

    def judge(
        self, facts: Mapping[int, RankFacts], newest_step: int, now_ns: int
    ) -> NoProgressVerdict:
        """Return how they stand; ``newest_step`` is the newest that any rank told, or -1."""
        frontiers = [one.frontier for one in facts.values()]
        known = [one for one in frontiers if one is not None]
        pause = next((one.pause for one in facts.values() if one.pause), "")
        # That nobody looked ends no stand: ranks that have not moved since do not go on by that.
        lasts = max((one.moved_at_ns for one in known), default=0) == self._still_at_ns
        self._still_at_ns = -1
        if pause or (now_ns - self._judged_ns > _UNSEEN_NS and not lasts):
            self._from_ns = now_ns
        self._judged_ns = now_ns
        if self._first_step < 0:
            self._first_step = newest_step
        if not known or len(known) < len(frontiers):
            return NoProgressVerdict(pause=pause, blind=_unread(len(known), len(frontiers)))
        self._find_blind(known, newest_step, now_ns)
        self._learn(max(one.moved_at_ns for one in known))
        if pause or self._blind:
            return NoProgressVerdict(pause=pause, blind=self._blind)
        if newest_step - self._step_at_move > self._steps_between:
            return NoProgressVerdict(blind=_PASSED)
        verdict = self._no_progress(known, newest_step, now_ns)
        if verdict.still:
            self._still_at_ns = self._moved_ns
        return verdict

    def _find_blind(self, known: Sequence[Frontier], newest_step: int, now_ns: int) -> None:
        """Notice that steps go on and no collective is recorded; so it stays."""
        moved_ns = max(one.moved_at_ns for one in known)
        if moved_ns != self._moved_ns or self._step_at_move < 0:
            if self._step_at_move >= 0:
                passed = newest_step - self._step_at_move
                self._steps_between = max(self._steps_between, passed)
            self._moved_ns, self._seen_ns, self._step_at_move = moved_ns, now_ns, newest_step
            return
        passed = newest_step - self._step_at_move
        if passed >= _BLIND_STEPS and now_ns - self._seen_ns >= _BLIND_NS:
            self._blind = f"{passed} steps passed without a collective that torch has recorded"

    def _learn(self, moved_ns: int) -> None:
        """Learn of a move of any rank; a gap with a pause in it teaches nothing."""
        if moved_ns <= self._newest_ns:
            return
        if self._newest_ns and self._from_ns <= self._newest_ns:
            gap_ns = min(moved_ns - self._newest_ns, _GAP_MAX_NS)
            stand = self._taught and gap_ns > max(LEAST_NS, _TIMES * self._rhythm_ns)
            self._longest_ns = max(self._longest_ns, 0 if stand else gap_ns)
        self._newest_ns = moved_ns

    def _no_progress(
        self, known: Sequence[Frontier], newest_step: int, now_ns: int
    ) -> NoProgressVerdict:
        if any(one.moves < _MOVES or one.gaps < _GAPS for one in known):
            return self._early(known, now_ns)
        taught = 0 <= self._first_step <= newest_step - _STEPS_LEAST
        if not taught and any(one.moves < _MOVES_WITHOUT_STEPS for one in known):
            early = self._early(known, now_ns)
            return early if early.still else replace(self._by_rhythm(known, now_ns), young=True)
        self._taught = True
        self._rhythm_ns = max(one.gap_ns for one in known)
        return self._by_rhythm(known, now_ns)

    def _by_rhythm(self, known: Sequence[Frontier], now_ns: int) -> NoProgressVerdict:
        usual_ns = max(_usual_ns(one) for one in known)
        due_ns = max(max(one.moved_at_ns, self._from_ns) + _usual_ns(one) for one in known)
        if now_ns <= due_ns:
            return NoProgressVerdict(usual_ns=usual_ns, due_ns=due_ns)
        since_ns = max(one.moved_at_ns for one in known)
        return NoProgressVerdict(since_ns=max(since_ns, self._from_ns), usual_ns=usual_ns)

    def _early(self, known: Sequence[Frontier], now_ns: int) -> NoProgressVerdict:
        """Return how ranks stand of which little was learned: by the generation before, if any."""
        if self._taught or not self._before_ns or not all(one.moves for one in known):
            return NoProgressVerdict()
        usual_ns = max(EARLY_LEAST_NS, _TIMES * max(self._before_ns, self._longest_ns))
        since_ns = max(max(one.moved_at_ns for one in known), self._from_ns)
        still = now_ns - since_ns > usual_ns
        return NoProgressVerdict(since_ns=since_ns if still else 0, usual_ns=usual_ns)


def _usual_ns(one: Frontier) -> int:
    return max(LEAST_NS, _TIMES * one.gap_ns)


def _unread(known: int, ranks: int) -> str:
    if not known:
        return "no rank has a recorder of its collectives that could be read"
    return f"{ranks - known} of {ranks} ranks have no recorder of their collectives"
