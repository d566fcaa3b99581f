"""How ranks ended, and which of them failed first. Pure."""

import signal
from collections.abc import Iterable
from dataclasses import dataclass

from everstep_common.failures import Side, classify, side


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEnd:
    """The end of one rank, as the kernel told it, and what the rank had said."""

    rank: int
    # As Popen gives it: an exit code, or a signal's negative.
    code: int
    core_dumped: bool
    at_boot_ns: int
    last_lines: tuple[str, ...]
    # When its last traceback began; None without one.
    traceback_boot_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """How a rank ended with an error."""

    generation: int
    end: RankEnd
    kind: str
    exception: str

    @classmethod
    def of(cls, generation: int, end: RankEnd) -> "Failure":
        """Return the failure that an end with an error is."""
        told = classify(max(end.code, 0), max(-end.code, 0), end.last_lines)
        return cls(generation, end, told.kind, told.exception)

    @property
    def is_consequence(self) -> bool:
        """Return whether another rank must have failed before."""
        return side(self.kind) is Side.CONSEQUENCE

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
        else:
            how = f"exited with code {end.code}"
        core = " (core dumped)" if end.core_dumped else ""
        return f"rank {end.rank} of generation {self.generation} {how}{core}"

    def last_line(self) -> str:
        """Return the last line with something in it."""
        return next((line for line in reversed(self.end.last_lines) if line.strip()), "")


def first_failure(failures: Iterable[Failure]) -> Failure | None:
    """Return the one that the others followed.

    A rank whose peer is gone may die before that peer: what lost a connection comes last.
    """
    return min(failures, key=lambda one: (one.is_consequence, one.began_boot_ns), default=None)


def failed_by_itself(end: RankEnd, told_boot_ns: int) -> bool:
    """Return whether a rank that was told to end was failing already."""
    began = end.traceback_boot_ns
    return end.code > 0 and began is not None and began < told_boot_ns


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def last_words(over: str, failure: Failure | None) -> list[str]:
    """Return what a launcher says at the end; the very last is the error that others followed."""
    if failure is None:
        return [over]
    here = [f"first failure here: {failure.sentence()}"]
    here += [f"  {line}" for line in failure.end.last_lines]
    return [*here, over] if failure.is_consequence else [over, *here]
