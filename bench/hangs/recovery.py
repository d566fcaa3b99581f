"""Hang recovery: from the moment a rank hangs until the job trains again, or ends; with a peer.

Jobs of four ranks with steps of 0.1 s. On two nodes with a spare: a held GIL, SIGSTOP, a rank that
is killed, and a node that dies with all that runs on it; the first three also with one rank a node,
and there after two evaluations of 20 s of which the script says nothing, and of which people are
told once. Under `everstep run --standalone`: the same on one node, a
program at fault (another collective, one that is skipped, another shape), what comes out by itself,
where nothing may be restarted, and one job with 20 s steps of 40 collectives. Beside them torchrun,
with a process-group timeout of 30 s (as shipped it is 30 minutes with gloo, 10 with NCCL). "In 95 %
of cases" needs ``--repeats 20``. Times are of the wall clock.
"""

import sys
from collections.abc import Callable, Iterator, Sequence

from hangs.recovery_runs import (
    PROGRAM,
    Hang,
    Recovery,
    in_time,
    repeated,
    standalone,
    torchrun,
    with_spare,
)
from hangs.scores import late_s
from harness.session import Benchmark, Part
from harness.table import Row, row

# Of the controller's events, those that say who it was; and what a sentence about the program says.
_VERDICTS = ("HangJudged", "CauseJudged", "JobEnded")
_PROGRAM_WORDS = ("he program", "do not fit together", "the script's own fault")
_STUCK = ("gil", "stop")
_ANY_NODE = (*_STUCK, "dead")
_PAUSES = ("evaluation", "loader", "save")
_EVALUATES_S = 20.0
_SPARE = {f"{how}, spare there": Hang(how) for how in (*_ANY_NODE, "node")}
_SPARE |= {f"{how}, one rank a node": Hang(how, processes=1) for how in _ANY_NODE}
_SPARE |= {
    f"{how}, after an evaluation": Hang(how, 30.0, processes=1, evaluates_s=_EVALUATES_S)
    for how in _ANY_NODE
}
_HOWS = (*_SPARE, *_STUCK, *PROGRAM, *_PAUSES, "long")
# Three steps are needed until it is known how long one takes.
_LONG = Hang("stop", warm_s=110.0, step_s=20.0, calls=40)
_PEER_TIMEOUT_S, _PEER_WARM_S = 30.0, 5.0
_RECOVERED_S, _DETECTED_S, _SEEN_S = 10.0, 10.0, 5.0
_LATE_SHARE = 0.05


def _rows(how: str, repeats: int, *, peer: bool) -> Iterator[Row]:
    if how == "long":
        found = [standalone(_LONG, "JobStalled")]
        yield from _marks("20 s steps of 40 collectives, stop", found, _DETECTED_S)
    elif how in PROGRAM:
        yield from _program(how, repeated(standalone, Hang(how), repeats))
    elif how in _PAUSES:
        found = repeated(standalone, Hang(how), repeats)
        yield from _marks(how, found, None)
        yield row(f"{how}: restarts", [float(one.restarts) for one in found], "", target=0.0)
    else:
        run: Callable[[Hang], Recovery] = with_spare if how in _SPARE else standalone
        hang = _SPARE.get(how, Hang(how))
        found = repeated(run, hang, repeats)
        yield from _marks(how, found, None)
        if hang.how in _STUCK:
            # One that is restarted at the first look was never told to stand still.
            told = [min_of(one, "JobStalled", "HangJudged") for one in found]
            yield from _late(f"{how} → detected", told, _SEEN_S)
        if hang.evaluates_s:
            told_before = [float(one.told_before) for one in found]
            yield row(
                f"{how}: evaluations that people were told of, of 2", told_before, "", target=1
            )
        yield from _late(f"{how} → new step", [one.next_step_s for one in found], _RECOVERED_S)
        if how in _STUCK and peer:
            yield from _peer(how, repeats)


def _program(how: str, found: Sequence[Recovery]) -> Iterator[Row]:
    yield from _marks(how, found, None)
    yield from _late(f"{how} → end of the job", [one.ended_s for one in found], _RECOVERED_S)
    wrong = [one for one in found if not _tells_the_program(one)]
    for one in wrong:
        print(f"{how}: not the right sentence: {one.said}", file=sys.stderr)
    name = f"{how}: runs of {len(found)} without the right sentence"
    yield row(name, [float(len(wrong))], "", target=0.0)


def _tells_the_program(one: Recovery) -> bool:
    """Return whether people were told that it is the program."""
    said = " ".join(one.said.get(reason, "") for reason in _VERDICTS)
    return any(words in said for words in _PROGRAM_WORDS)


def min_of(one: Recovery, *reasons: str) -> float | None:
    """Return when the first of some things was told; None: none was."""
    return min((one.marks[reason] for reason in reasons if reason in one.marks), default=None)


def _late(name: str, came: Sequence[float | None], target_s: float) -> Iterator[Row]:
    """Yield the median, the 95th percentile, and how many were later than they should be."""
    seconds = in_time(came)
    yield row(name, seconds, "s", target=target_s)
    yield row(f"{name}, 95th percentile", [late_s(seconds)], "s", target=target_s)
    late = sum(one > target_s for one in seconds)
    share = f"{name}: share of {len(seconds)} runs later than {target_s:g} s"
    yield row(share, [late / len(seconds)], "", target=_LATE_SHARE)


def _peer(how: str, repeats: int) -> Iterator[Row]:
    """Yield the peer's new step; a peer that made none in any run has no time."""
    peers = repeated(torchrun, Hang(how, warm_s=_PEER_WARM_S, timeout_s=_PEER_TIMEOUT_S), repeats)
    came = [one.next_step_s for one in peers if one.next_step_s is not None]
    name = f"torchrun, timeout 30 s: {how} → new step"
    if came:
        yield row(name, came, "s")
    without = float(len(peers) - len(came))
    yield row(f"{name}: runs of {len(peers)} without one", [without], "")


def _marks(how: str, found: Sequence[Recovery], target: float | None) -> Iterator[Row]:
    for mark, words in (("JobStalled", "seen to stand still"), ("HangJudged", "verdict")):
        seconds = [one.marks[mark] for one in found if mark in one.marks]
        if seconds:
            of = target if mark == "JobStalled" else None
            yield row(f"{how} → {words}", seconds, "s", target=of)


def _part(how: str) -> Part:
    job_s = 45.0 + (_EVALUATES_S * 2 + 10 if how.endswith("evaluation") else 0.0)
    seconds = 200.0 if how == "long" else 3 * job_s + (200.0 if how in _STUCK else 0.0)
    return Part(how, seconds, lambda given: _rows(how, given.repeats, peer=not given.no_peer))


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[_part(how) for how in _HOWS],
    repeats=3,
    add_options=lambda parser: parser.add_argument(
        "--no-peer", action="store_true", help="without torchrun"
    ),
    quick={"repeats": 1},
)
