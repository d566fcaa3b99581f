"""Looks: what one look at the ranks of a job finds, and how many in a row find the same. Pure.

A verdict alone does not tell whether a job goes on: ranks that wait look the same a moment later in
their next operation. So looks are compared by where each rank stands, too.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from everstep_common.hangs.judging.explanation import plural
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.judging.process_evidence import (
    UNINTERRUPTIBLE_MS,
    process_class,
    stands_with_gil,
    waits_for_data,
    works_with_gil,
)
from everstep_common.hangs.node_reports import NodeTold, read_all
from everstep_common.hangs.reports.rank_report import (
    PAUSED,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_common.hangs.reports.verdict import Confidence, HangClass, HangVerdict
from everstep_common.printable import printable

# Of an error of a judge, what fits a line.
_FAILURE_MAX = 300
# Where a rank stands by its step, and by its groups: numbers that are others elsewhere; None: it
# did not tell that, as in a look that its recorder did not answer.
Mark = tuple[int | None, int | None]
Marks = Mapping[int, Mark]

# Where nobody waits, a frame more would be another one at each moment of one evaluation.
_OUTERMOST = 2
# Of ranks at many places at once, so many count.
_PLACES_MAX = 4
_DIGEST_BYTES = 8

_Stack = tuple[str, ...]
# The place of a rank of which only that is known.
_IN_NATIVE_CODE = "native code that holds the GIL"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found."""

    at_ns: int
    verdict: HangVerdict
    # Culprits that cannot go on by themselves.
    stuck: tuple[int, ...]
    marks: Marks
    # What a rank does that is no step, in words; "" where none does.
    pause: str = ""
    # Ranks whose process was seen, besides those that told where they stand.
    seen: tuple[int, ...] = ()
    # PCI addresses of the accelerators that the culprits have open; None: not all tell.
    devices: tuple[str, ...] | None = None
    # Where those stand who hold the job back, as a number; "" where nobody tells it.
    place: str = ""
    # For how long the culprits have held the GIL at least, 0: none was seen to; and whether one of
    # them builds or writes something with it.
    held_ms: int = 0
    works: bool = False
    # Why it could not be judged, in words; "" where it was.
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Streak:
    """The newest of some looks in a row between which no rank has moved."""

    newest: Look
    # How many of them, up to the newest, found the same; and when the first of these was.
    looks: int
    same_since_ns: int
    # When the first look was after which no rank has moved.
    unmoved_since_ns: int


def judge_told(told: Iterable[NodeTold], at_ns: int = 0) -> Look:
    """Return what a look found, of what nodes told in it; stacks are only for the job's user."""
    found = read_all(told)
    verdict = judge(found.reports, found.world_size, with_frames=False)
    stuck = stuck_ranks(found.reports, verdict)
    holding = holders_of_gil(found.reports, verdict)
    return Look(
        at_ns,
        verdict,
        stuck,
        marks=where_ranks_stand(found.reports),
        pause=pause_of(found.reports),
        place=place_of(found.reports, verdict),
        seen=tuple(sorted(one.rank for one in found.reports if _is_seen(one))),
        devices=devices_of(found.reports, verdict),
        held_ms=min((one.gil_held_ms for one in holding), default=0),
        works=any(map(works_with_gil, holding)),
    )


def unjudged(at_ns: int, why: str) -> Look:
    """Return a look of which the judge failed."""
    sentence = f"who holds it back is not known: the judge failed: {printable(why)}"
    verdict = HangVerdict(HangClass.UNKNOWN, (), Confidence.UNSURE, sentence[:_FAILURE_MAX])
    return Look(at_ns, verdict, (), {}, failure=printable(why)[:_FAILURE_MAX])


def _is_seen(report: RankHangReport) -> bool:
    return report.process.state is not ProcessState.UNKNOWN


def devices_of(reports: Iterable[RankHangReport], verdict: HangVerdict) -> tuple[str, ...] | None:
    """Return which accelerators the culprits have open; None where that is not known of each."""
    told = {one.rank: one.process.devices for one in reports}
    found: set[str] = set()
    for culprit in verdict.culprits:
        open_there = told.get(culprit.rank)
        if open_there is None:
            return None
        found.update(open_there)
    return tuple(sorted(found)) if verdict.culprits else None


def pause_of(reports: Iterable[RankHangReport]) -> str:
    """Return what the first rank in a pause does, in words; "" where none is in one.

    Within a pause no step is expected of any rank of the job.
    """
    paused = [one for one in reports if one.phase.startswith(PAUSED)]
    if not paused:
        return ""
    first = min(paused, key=lambda one: one.rank)
    return f"rank {first.rank}, {printable(first.phase.removeprefix(PAUSED))}"


def where_ranks_stand(reports: Iterable[RankHangReport]) -> Marks:
    """Return where each rank stands that tells it: its step, and its place in each group."""
    return {report.rank: _place(report) for report in reports if _tells(report)}


def _tells(report: RankHangReport) -> bool:
    return bool(report.groups) or report.step is not None


def _place(report: RankHangReport) -> Mark:
    """Return numbers for where a rank stands, the same in every process: numbers hash alike."""
    phase = zlib.crc32(report.phase.encode())
    told: list[int | None] = []
    for one in report.groups:
        told += (one.enqueued, one.completed, one.p2p_enqueued, one.p2p_completed)
    numbers = (phase, *[-1 if number is None else number for number in told])
    return (
        hash((report.step, phase)) if report.step is not None else None,
        hash(numbers) if report.groups else None,
    )


def stuck_ranks(reports: Iterable[RankHangReport], verdict: HangVerdict) -> tuple[int, ...]:
    """Return which culprits cannot go on by themselves, as their processes were seen.

    One that is dead or stopped, 10 s in the kernel, or holds the GIL in native code that stands
    still; whatever else a culprit does, it may end. So may what takes long in a pause.
    """
    named = {one.rank for one in verdict.culprits}
    return tuple(sorted(one.rank for one in reports if one.rank in named and _is_stuck(one)))


def _is_stuck(report: RankHangReport) -> bool:
    process = report.process
    seen = process_class(report) is not None
    if report.phase.startswith(PAUSED):
        return seen and process.state is not ProcessState.UNINTERRUPTIBLE
    held = stands_with_gil(process)
    # Whoever reads a slow file may do so with the GIL, too.
    in_time = waits_for_data(process) and process.state_for_ms < UNINTERRUPTIBLE_MS
    return (held and not in_time) or seen


def holders_of_gil(reports: Iterable[RankHangReport], verdict: HangVerdict) -> list[ProcessFacts]:
    """Return the processes of the culprits that hold the GIL."""
    named = {one.rank for one in verdict.culprits if one.kind is HangClass.GIL_HELD}
    return [one.process for one in reports if one.rank in named]


def follow(before: Streak | None, look: Look) -> Streak:
    """Return the looks in a row that a new one ends.

    One that has missed ranks which the look before saw has not seen what was found to be over: a
    verdict that was sure stays until all are seen again, or one has moved.
    """
    if before is None or _has_moved(before.newest.marks, look.marks):
        return Streak(look, 1, look.at_ns, look.at_ns)
    if _has_missed(before.newest, look):
        kept = _kept(before.newest, look)
        return Streak(kept, before.looks, before.same_since_ns, before.unmoved_since_ns)
    look = replace(look, marks=_joined(before.newest.marks, look.marks))
    if says_same(before.newest.verdict, look.verdict):
        return Streak(look, before.looks + 1, before.same_since_ns, before.unmoved_since_ns)
    return Streak(look, 1, look.at_ns, before.unmoved_since_ns)


def _has_missed(before: Look, look: Look) -> bool:
    """Return whether a look withdraws what was sure, and has not seen all that the one before did.

    What it is sure of itself is no withdrawal, nor is a look of which the judge failed.
    """
    sure = before.verdict.confidence is not Confidence.UNSURE and before.verdict.culprits
    found = look.verdict.confidence is Confidence.CERTAIN and look.verdict.culprits
    if not sure or found or look.failure or says_same(before.verdict, look.verdict):
        return False
    lost = any(_tells_less(mark, look.marks.get(rank)) for rank, mark in before.marks.items())
    return lost or bool({*before.seen} - {*look.seen})


def _tells_less(before: Mark, after: Mark | None) -> bool:
    pairs = zip(before, after or (None, None), strict=True)
    return any(one is not None and other is None for one, other in pairs)


def _kept(before: Look, look: Look) -> Look:
    """Return what was found before, as of a later look which has seen less."""
    marks = _joined(before.marks, look.marks)
    seen = tuple(sorted({*before.seen, *look.seen}))
    return replace(before, at_ns=look.at_ns, marks=marks, seen=seen)


def _joined(before: Marks, after: Marks) -> Marks:
    """Return where ranks stand that have not moved between two looks, by what either has seen."""
    joined = {**before, **after}
    for rank in before.keys() & after.keys():
        (step, groups), (step_now, groups_now) = before[rank], after[rank]
        joined[rank] = (
            step if step_now is None else step_now,
            groups if groups_now is None else groups_now,
        )
    return joined


def _has_moved(before: Marks, after: Marks) -> bool:
    return bool(_moved(before, after))


def _moved(before: Marks, after: Marks) -> list[int]:
    """Return the ranks that told where they stand both times, and stand elsewhere."""
    return [rank for rank, mark in after.items() if _differ(before.get(rank, mark), mark)]


def _differ(before: Mark, after: Mark) -> bool:
    pairs = zip(before, after, strict=True)
    return any(None not in (one, other) and one != other for one, other in pairs)


def moving_job(
    before: Iterable[RankHangReport], after: Iterable[RankHangReport], verdict: HangVerdict
) -> str:
    """Return that a job of which the first look blamed a rank goes on; "" where it does not.

    In any job that trains somebody comes last to each operation.
    """
    moved = _moved(where_ranks_stand(before), where_ranks_stand(after))
    if not moved:
        return ""
    have = "has" if len(moved) == 1 else "have"
    named = plural([one.rank for one in verdict.culprits])
    last = f" ({named} came last at one moment, as one does)" if verdict.culprits else ""
    return f"The job goes on: {plural(moved)} {have} moved between two looks{last}"


def of_moving_job(verdict: HangVerdict, goes_on: str) -> HangVerdict:
    """Return the verdict on a job of which a second look has seen that it goes on."""
    return HangVerdict(
        HangClass.NO_WAIT,
        (),
        Confidence.CERTAIN,
        goes_on,
        world_size=verdict.world_size,
        told=verdict.told,
    )


def says_same(one: HangVerdict, other: HangVerdict) -> bool:
    """Return whether two verdicts blame the same ranks for the same, both or none for sure."""
    return (
        one.kind is other.kind
        and (one.confidence is Confidence.UNSURE) is (other.confidence is Confidence.UNSURE)
        and {(culprit.rank, culprit.kind) for culprit in one.culprits}
        == {(culprit.rank, culprit.kind) for culprit in other.culprits}
    )


def place_of(reports: Iterable[RankHangReport], verdict: HangVerdict) -> str:
    """Return where a job stands that a look has found to be held back; "" where nobody tells.

    It is the place of those who hold the others back: their phase, and the outermost frames of
    their stacks, down to the first in which they are elsewhere than everybody who waits. So an
    evaluation is one place wherever it stands within, and whoever waits for it is at none.
    """
    told = list(reports)
    sure = verdict.confidence is not Confidence.UNSURE
    culprits = {one.rank for one in verdict.culprits} if sure else set()
    holding = [one for one in told if one.rank in culprits] or told
    waiting = [_outermost_first(one) for one in told if culprits and one.rank not in culprits]
    places = sorted({_script_place(one, waiting) for one in holding} - {("",)})[:_PLACES_MAX]
    if not places:
        return ""
    text = "\n\n".join("\n".join(one) for one in places)
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _script_place(report: RankHangReport, waiting: Sequence[_Stack]) -> _Stack:
    """Return the phase of a rank and its outermost frames."""
    stack = _outermost_first(report)
    common = [_in_common(stack, other) for other in waiting if other]
    return report.phase, *stack[: max(common) + 1 if common else _OUTERMOST]


def _outermost_first(report: RankHangReport) -> _Stack:
    process = report.process
    return process.python_stack[::-1] or ((_IN_NATIVE_CODE,) if process.gil_held else ())


def _in_common(one: _Stack, other: _Stack) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
