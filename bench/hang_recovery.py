"""Hang recovery: from the moment a rank hangs until the job trains again, or ends; with a peer.

    python bench/hang_recovery.py [--json] [--repeats 3] [--only HOW [HOW …]] [--no-peer]

Jobs of four ranks with steps of 0.1 s. On two nodes with a spare: a held GIL, SIGSTOP, and a node
that dies with all that runs on it. Under `everstep run --standalone`: the same on one node, a
program at fault (another collective, one that is skipped, another shape), what comes out by itself,
where nothing may be restarted, and one job with 20 s steps of 40 collectives. Beside them torchrun,
with a process-group timeout of 30 s (as shipped it is 30 minutes with gloo, 10 with NCCL). "In 95 %
of cases" needs ``--repeats 20``. Times are of the wall clock.
"""

import sys
from collections.abc import Callable, Iterator, Sequence

from hang_recovery_runs import (
    PROGRAM,
    Hang,
    Recovery,
    in_time,
    repeated,
    standalone,
    torchrun,
    with_spare,
)
from hang_scores import late_s
from table import Row, arguments, row, show

# Of the controller's events, those that say who it was; and what a sentence about the program says.
_VERDICTS = ("HangJudged", "CauseJudged", "JobEnded")
_PROGRAM_WORDS = ("he program", "do not fit together", "the script's own fault")
_STUCK = ("gil", "stop")
_PAUSES = ("evaluation", "loader", "save")
_SPARE = {f"{how}, spare there": how for how in (*_STUCK, "node")}
_HOWS = (*_SPARE, *_STUCK, *PROGRAM, *_PAUSES, "long")
# Three steps are needed until it is known how long one takes.
_LONG = Hang("stop", warm_s=110.0, step_s=20.0, calls=40)
_PEER_TIMEOUT_S, _PEER_WARM_S = 30.0, 5.0
_RECOVERED_S, _DETECTED_S = 10.0, 10.0
_LATE_SHARE = 0.05


def main() -> int:
    """Measure, and print the table."""
    parser = arguments((__doc__ or "").partition("\n")[0])
    parser.set_defaults(repeats=3)
    parser.add_argument("--only", choices=_HOWS, nargs="+", default=_HOWS, help="some of them")
    parser.add_argument("--no-peer", action="store_true", help="without torchrun")
    options = parser.parse_args()
    rows = [
        one for how in options.only for one in _rows(how, options.repeats, peer=not options.no_peer)
    ]
    show(rows, options.json)
    return 0


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
        found = repeated(run, Hang(_SPARE.get(how, how)), repeats)
        yield from _marks(how, found, None)
        yield from _late(f"{how} → new step", [one.next_step_s for one in found])
        if how in _STUCK and peer:
            yield from _peer(how, repeats)


def _program(how: str, found: Sequence[Recovery]) -> Iterator[Row]:
    yield from _marks(how, found, None)
    yield from _late(f"{how} → end of the job", [one.ended_s for one in found])
    wrong = [one for one in found if not _tells_the_program(one)]
    for one in wrong:
        print(f"{how}: not the right sentence: {one.said}", file=sys.stderr)
    name = f"{how}: runs of {len(found)} without the right sentence"
    yield row(name, [float(len(wrong))], "", target=0.0)


def _tells_the_program(one: Recovery) -> bool:
    """Return whether people were told that it is the program."""
    said = " ".join(one.said.get(reason, "") for reason in _VERDICTS)
    return any(words in said for words in _PROGRAM_WORDS)


def _late(name: str, came: Sequence[float | None]) -> Iterator[Row]:
    """Yield the median, the 95th percentile, and how many were later than they should be."""
    seconds = in_time(came)
    yield row(name, seconds, "s", target=_RECOVERED_S)
    yield row(f"{name}, 95th percentile", [late_s(seconds)], "s", target=_RECOVERED_S)
    late = sum(one > _RECOVERED_S for one in seconds)
    share = f"{name}: share of {len(seconds)} runs later than {_RECOVERED_S:g} s"
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


if __name__ == "__main__":
    sys.exit(main())
