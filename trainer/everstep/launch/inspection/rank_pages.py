"""Rank pages: memory in which the ranks of one generation tell how far they are, and its reader.

What is in it was written by ranks, so that each number and text of it is checked.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

from everstep.rank.interpreter import everstep_rank_page as page
from everstep_common import quantities as q
from everstep_common.compute_time import PACKED_MAX
from everstep_common.hangs.reports.rank_report import PAUSED
from everstep_common.printable import printable
from everstep_common.sealed_memory import SIZE_SEALS

# Memory is mapped from places that are multiples of this.
_GRAIN = mmap.ALLOCATIONGRANULARITY
_STRIDE = -(-page.SPAN // _GRAIN) * _GRAIN
_DURATION_MAX_NS = 3600 * 10**9
_MOVES_MAX = 2**40
# PID_MAX_LIMIT of Linux.
_PID_MAX = 2**22
THE_END = "the end of the script"


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far the collectives of a rank are, and how long they have been known to stand still."""

    # When one was last seen to be enqueued or completed; boot clock.
    moved_at_ns: int
    # In how many readings one was.
    moves: int
    # The longest gap between two of them in the phase in which the rank is; 0: none is known.
    gap_ns: int
    # How many gaps were seen in that phase.
    gaps: int


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What one rank tells of itself."""

    # The newest step that it completed, and when; None: none, or its script does not use the SDK.
    step: int | None = None
    step_at_ns: int = 0
    phase: str = ""
    # What it does that is no step, by its own word or its stack; "": it trains.
    pause: str = ""
    # Whether it destroys its process groups or has done so; whether its script is over.
    is_leaving: bool = False
    is_over: bool = False
    # As `compute_time` packs it; 0: it tells nothing of that.
    own: int = 0
    role: str = ""
    frontier: Frontier | None = None
    # When its watch was last heard of, which needs the GIL, and the process and thread of it.
    watched_at_ns: int = 0
    watch_thread: int = 0
    watch_process: int = 0
    # For how long nothing was heard of it; 0: it was a moment ago, or there is no watch.
    unheard_ns: int = 0
    # Whether that thread has waited for the GIL since then, as the kernel shows.
    waits_for_gil: bool = False
    # Where that is told: the page, as the rank itself finds it.
    page: str = ""

    @property
    def shown(self) -> str:
        """Return the phase, pause or end as people read it.

        An end is no pause: others may wait in vain for a rank that has left too early.
        """
        if self.is_over or (self.is_leaving and not self.pause):
            return THE_END
        return f"{PAUSED}{self.pause}"[:40] if self.pause else self.phase


class RankPages:
    """One page for each rank of this node, until `close`."""

    def __init__(self, ranks: Sequence[int]) -> None:
        """Make them. Raises OSError."""
        self._places = {rank: index * _STRIDE for index, rank in enumerate(ranks)}
        self._number = os.memfd_create("everstep-ranks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._number, max(1, len(ranks)) * _STRIDE)
            fcntl.fcntl(self._number, fcntl.F_ADD_SEALS, SIZE_SEALS | fcntl.F_SEAL_SEAL)
            self._memory = mmap.mmap(self._number, 0, prot=mmap.PROT_READ)
        except OSError:
            os.close(self._number)
            raise

    def environment(self, rank: int) -> dict[str, str]:
        """Return by what a rank finds its page."""
        return {page.PLACE: self.place(rank)}

    def place(self, rank: int) -> str:
        """Return where a rank's page is; "" where it has none."""
        at = self._places.get(rank)
        return "" if at is None else f"/proc/{os.getpid()}/fd/{self._number}:{at}"

    def read(self, rank: int, now_ns: int) -> RankFacts:
        """Return what a rank has told; nothing where it has not, or what cannot be."""
        place = self._places.get(rank)
        if place is None:
            return RankFacts()
        return rank_facts(self._memory[place : place + page.BYTES], now_ns)

    def close(self) -> None:
        """Free them; ranks that still run keep theirs."""
        self._memory.close()
        os.close(self._number)


def rank_facts(content: bytes, now_ns: int) -> RankFacts:
    """Return what a page says; nothing of what cannot be. Pure."""
    words = memoryview(content).cast("q")
    if len(content) != page.BYTES or words[page.LAYOUT] != page.MAGIC:
        return RankFacts()
    step, step_at_ns = words[page.STEP] - 1, words[page.STEP_AT]
    known = 0 <= step <= q.TOLD_MAX and 0 < step_at_ns <= now_ns
    phase = words[page.PHASE] % page.PHASES
    activity = words[page.ACTIVITY]
    watched_at_ns, watch_thread, watch_process = _watch(words)
    return RankFacts(
        step=step if known else None,
        step_at_ns=step_at_ns if known else 0,
        phase=_name(content, page.NAMES + phase * page.NAME_BYTES),
        pause=_pause(content, words),
        is_leaving=activity in (page.GROUPS_END, page.SCRIPT_END),
        is_over=activity == page.SCRIPT_END,
        own=words[page.OWN] if 0 < words[page.OWN] <= PACKED_MAX else 0,
        role=_name(content, page.ROLE_NAME),
        frontier=_frontier(words, phase, now_ns),
        watched_at_ns=watched_at_ns if 0 < watched_at_ns <= now_ns else 0,
        watch_thread=watch_thread if 0 < watch_thread <= _PID_MAX else 0,
        watch_process=watch_process if 0 < watch_process <= _PID_MAX else 0,
    )


def _watch(words: memoryview) -> tuple[int, int, int]:
    """Return when Python was last seen to run, and by which thread of which process.

    By the watch of the frontier, or where there is none by that of the GIL alone.
    """
    if words[page.WATCH_THREAD] or not words[page.GIL_THREAD]:
        return words[page.READ_AT], words[page.WATCH_THREAD], words[page.WATCH_PID]
    return words[page.GIL_AT], words[page.GIL_THREAD], words[page.GIL_PID]


def _pause(content: bytes, words: memoryview) -> str:
    if words[page.PAUSES] > 0:
        return _name(content, page.PAUSE_NAME) or "unnamed"
    activity = words[page.ACTIVITY]
    return page.ACTIVITIES[activity] if 0 < activity < len(page.ACTIVITIES) else ""


def _frontier(words: memoryview, phase: int, now_ns: int) -> Frontier | None:
    moved_at_ns, moves = words[page.MOVED_AT], words[page.MOVES]
    gap_ns, gaps = words[page.GAPS + phase], words[page.COUNTS + phase]
    told = words[page.WATCH_PID] > 0 and words[page.READ_AT] > 0
    possible = 0 <= moved_at_ns <= now_ns and 0 <= moves <= _MOVES_MAX
    if not told or not possible or not 0 <= gap_ns <= _DURATION_MAX_NS:
        return None
    return Frontier(moved_at_ns, moves, gap_ns, max(0, gaps))


def _name(content: bytes, place: int) -> str:
    told = content[place : place + page.NAME_BYTES].rstrip(b"\0")
    return printable(told.decode("utf-8", "replace"))[:40]
