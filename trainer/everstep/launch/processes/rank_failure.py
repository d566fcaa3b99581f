"""Rank failures: how the ranks of a generation ended, and which of them failed first. Pure."""

import signal
from collections.abc import Iterable
from dataclasses import dataclass

from everstep_common.endings import is_by_user
from everstep_common.failures.classification import (
    FOLLOWING,
    Side,
    classify,
    is_progress,
    last_error,
    side,
)
from everstep_common.failures.tracebacks import plain
from everstep_common.launcher_messages import End
from everstep_common.reports import RankExited

# What a signal ends so long after an exception, it ends at the interpreter's end: torch's process
# groups are taken down then. After that the process has lived through it.
_DYING_NS = 60_000_000_000
_LAST_LINE_MAX = 1000
# Of a traceback that is longer, so much is said again at the end: its beginning and its end.
_SAID_LINES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """The end of one rank, as the kernel told it, and what the rank had said."""

    rank: int
    # As Popen gives it: an exit code, or a signal's negative.
    code: int
    core_dumped: bool
    at_boot_ns: int
    last_lines: tuple[str, ...]
    # Its newest traceback, whole, and when that began; None without one.
    traceback: tuple[str, ...] = ()
    traceback_boot_ns: int | None = None
    # Where its core dump is, or the command that shows it.
    core_file: str = ""

    @property
    def died_of(self) -> tuple[str, ...]:
        """The traceback, where the end can be its consequence."""
        began = self.traceback_boot_ns
        soon = began is not None and self.at_boot_ns - began < _DYING_NS
        return self.traceback if self.code > 0 or soon else ()


@dataclass(frozen=True, slots=True)
class RankFailure:
    """Failure of a rank: its end, and the kind as which that is classified."""

    generation: int
    end: RankEnd
    kind: str
    exception: str

    @classmethod
    def of(cls, generation: int, end: RankEnd) -> "RankFailure":
        """Return the failure that an end with an error is."""
        told = classify(max(end.code, 0), max(-end.code, 0), end.last_lines, end.died_of)
        return cls(generation, end, told.kind, told.exception)

    @property
    def is_consequence(self) -> bool:
        """Return whether another rank must have failed before, or did not come."""
        return side(self.kind) in FOLLOWING

    @property
    def leads_to_others(self) -> bool:
        """Return whether who is at fault is not to be seen by this, but by what others have called.

        So it is where a rank gave up waiting, and where it got data that did not fit.
        """
        return side(self.kind) in (Side.WAITED, Side.UNFIT)

    @property
    def began_boot_ns(self) -> int:
        """Return when it began: a process may take seconds to die of an exception."""
        told = self.end.traceback_boot_ns
        return self.end.at_boot_ns if told is None else told

    def sentence(self) -> str:
        """Return what happened, in words."""
        end = self.end
        if end.code < 0:
            how = f"was killed by {_signal_name(-end.code)}"
            if self.kind == "host_memory":
                how += f" ({self.exception or 'memory ran out'})"
        else:
            how = f"exited with code {end.code}"
        where = f": {end.core_file}" if end.core_file else ""
        core = f" (core dumped{where})" if end.core_dumped else ""
        return f"rank {end.rank} of generation {self.generation} {how}{core}"

    def report(self) -> RankExited:
        """Return the report for the agent."""
        end = self.end
        return RankExited(
            generation=self.generation,
            rank=end.rank,
            exit_code=max(end.code, 0),
            signal=max(-end.code, 0),
            at_boot_ns=end.at_boot_ns,
            last_line=self.last_line()[:_LAST_LINE_MAX],
            kind=self.kind,
            exception=self.exception,
            core_dumped=end.core_dumped,
            core_file=end.core_file,
        )

    def last_line(self) -> str:
        """Return the last line that can be the reason; "": none can."""
        if self._traced:
            return self.exception
        code = self.end.code
        return last_error(max(code, 0), max(-code, 0), self.kind, self.end.last_lines)

    def said(self) -> tuple[str, ...]:
        """Return its last lines: of a traceback the exception is the very last."""
        if not self._traced:
            return tuple(line for line in self.end.last_lines if not is_progress(line))
        lines = _shortened(self.end.died_of)
        return lines if self.exception in plain(lines[-1]) else (*lines, self.exception)

    @property
    def _traced(self) -> bool:
        return bool(self.exception and self.end.died_of)


def is_giving_up(traceback: tuple[str, ...], began_boot_ns: int | None, now_boot_ns: int) -> bool:
    """Return whether a rank that still runs is ending because others did not come, or did not fit.

    ``traceback`` is its newest, whole. Until the interpreter is down it may take seconds.
    """
    if began_boot_ns is None or now_boot_ns - began_boot_ns >= _DYING_NS:
        return False
    return side(classify(1, 0, (), traceback).kind) in (Side.WAITED, Side.UNFIT)


def first_failure(failures: Iterable[RankFailure]) -> RankFailure | None:
    """Return the one that the others followed.

    A rank whose peer is gone may die before that peer: what lost a connection comes last.
    """
    return min(failures, key=lambda one: (one.is_consequence, one.began_boot_ns), default=None)


def failed_by_itself(end: RankEnd, told_boot_ns: int) -> bool:
    """Return whether a rank that was told to end was failing already."""
    began = end.traceback_boot_ns
    return end.code > 0 and began is not None and began < told_boot_ns


def _shortened(lines: tuple[str, ...]) -> tuple[str, ...]:
    left_out = len(lines) - _SAID_LINES_MAX
    if left_out <= 0:
        return lines
    half = _SAID_LINES_MAX // 2
    return (*lines[:half], f"… {left_out} lines …", *lines[-half:])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def last_words(job: str, end: End, failure: RankFailure | None) -> list[str]:
    """Return what a launcher says at the end; the very last is the error that others followed.

    Ranks whose peers a user has ended fail as well, with tracebacks that explain nothing.
    """
    if is_by_user(end.reason):
        here = [] if failure is None else [f"{failure.sentence()}; the job did not end by that"]
        return [*here, f"job {job} was {end.reason}"]
    over = f"job {job} {'succeeded' if end.succeeded else 'failed'}: {end.reason}"
    if end.succeeded or failure is None:
        return [over]
    here = [f"first failure here: {failure.sentence()}"]
    here += [f"  {line}" for line in failure.said()]
    return [*here, over] if failure.is_consequence else [over, *here]
