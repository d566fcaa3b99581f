"""Cases of live hangs: what is injected, where, what is right about it, and who shares a job. Pure.

A case is drawn from its kind and seed alone.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hangs.programs import LAYOUTS, PIPELINES, SAVED, changed, layout

from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_common.hangs.reports.verdict import HangClass, HangVerdict

# What each kind of injection is rightly called; of a program's fault the rank need not be named.
RIGHT: dict[str, HangClass] = {
    "sleep": HangClass.CPU_SIDE,
    "lock": HangClass.CPU_SIDE,
    "gil": HangClass.GIL_HELD,
    "gil_computing": HangClass.GIL_HELD,
    "stop": HangClass.FROZEN,
    "kill": HangClass.DEAD,
    "skip": HangClass.DESYNC,
    "reorder": HangClass.DESYNC,
    "shape": HangClass.DESYNC,
    "recv": HangClass.DESYNC,
    "loader": HangClass.CPU_SIDE,
    "evaluation": HangClass.CPU_SIDE,
    "save": HangClass.CPU_SIDE,
    "save_blocked": HangClass.CPU_SIDE,
}
KINDS = tuple(RIGHT)
# What a save is called where a look finds it in the kernel: the disk is as busy as it looks.
_ON_DISK = ("save", HangClass.STORAGE)
PROGRAM_KINDS = frozenset(("skip", "reorder", "shape", "recv"))
# What comes out by itself: nothing is to be done but to tell it.
NEGATIVES = frozenset(("loader", "evaluation", "save", "save_blocked"))
_ENDING = PROGRAM_KINDS | {"gil_computing", "kill"}
# Where the stack of a negative says that its rank is.
PLACES = {
    "loader": "_load_batch",
    "evaluation": "_evaluate",
    "save": "_save_checkpoint",
    "save_blocked": "_save_to_a_pipe",
}
# Kinds that happen only to rank 0.
_ALONE = {"evaluation": 0, "save": 0, "save_blocked": 0}
# Of one job in a row: a rank has so many phases, and each injection one of its own.
_SHARED_MAX = 12


@dataclass(frozen=True, slots=True)
class Case:
    """One injection; kind and seed tell all of it."""

    kind: str
    seed: int
    layout: str
    ranks: int
    victim: int
    place: float
    # After which time a signal is sent.
    delay_s: float
    # Whether a rank ends when others do not answer any more.
    exits: bool

    @property
    def ends_job(self) -> bool:
        """Return whether its job does not go on afterwards."""
        return self.kind in _ENDING


def draw_case(kind: str, seed: int) -> Case:
    """Return the case of a kind and seed."""
    draw = random.Random(f"live {kind} {seed}")
    while True:
        name = draw.choice(PIPELINES if kind == "recv" else LAYOUTS)
        ranks = draw.choice((4, 8))
        victim = _ALONE.get(kind, draw.randrange(ranks))
        place = draw.random()
        delay_s, exits = draw.uniform(0.0, 0.3), draw.random() < 0.7
        step = layout(name, ranks, layout_seed(name, ranks)).steps[victim]
        if kind not in PROGRAM_KINDS or changed(step, kind, place) is not None:
            return Case(kind, seed, name, ranks, victim, place, delay_s, exits)


def layout_seed(name: str, ranks: int) -> int:
    """Return the seed of a layout's programs."""
    # Each layout has one program of each size in a run, so that jobs can be shared.
    return LAYOUTS.index(name) * 10 + ranks


@dataclass(slots=True)
class Outcome:
    """What became of a case; seconds are since the fault."""

    case: Case
    # Of the first look, and of the one after it; None where nothing hung.
    first: HangVerdict | None = None
    verdict: HangVerdict | None = None
    reports: list[RankHangReport] = field(default_factory=list)
    # Until its ranks were told to stand still or one had ended, the first look, the verdict.
    detected_s: float = 0.0
    first_s: float = 0.0
    verdict_s: float = 0.0
    judged_ms: float = 0.0
    # Whether the job went on, where it should.
    went_on: bool = True

    @property
    def named(self) -> set[int]:
        """Return the ranks that are blamed."""
        return {one.rank for one in self.verdict.culprits} if self.verdict else set()

    @property
    def class_right(self) -> bool:
        """Return whether the hang was called what it was."""
        kind = self.case.kind
        told = self.verdict and self.verdict.kind
        return told is RIGHT[kind] or (kind, told) == _ON_DISK

    @property
    def place_right(self) -> bool:
        """Return whether the reason says where a rank is that comes out by itself."""
        kind = self.case.kind
        told = self.verdict and self.verdict.kind
        place = SAVED if (kind, told) == _ON_DISK else PLACES.get(kind)
        culprits = self.verdict.culprits if self.verdict else ()
        return place is None or any(place in one.reason for one in culprits)

    @property
    def right(self) -> bool:
        """Return whether nothing about it was wrong."""
        names = self.named
        if self.case.kind in PROGRAM_KINDS:
            return self.class_right and names <= {self.case.victim}
        return self.class_right and names == {self.case.victim} and self.place_right


def plan(cases: Sequence[Case]) -> list[list[Case]]:
    """Return which cases share a job: some that it survives, and one that ends it."""
    shared: dict[tuple[str, int], tuple[list[Case], list[Case]]] = {}
    for case in cases:
        survived, ending = shared.setdefault((case.layout, case.ranks), ([], []))
        (ending if case.ends_job else survived).append(case)
    jobs = []
    for survived, ending in shared.values():
        count = max(1, len(ending), -(-len(survived) // _SHARED_MAX))
        for number in range(count):
            jobs.append([*survived[number::count], *ending[number : number + 1]])
    return jobs
