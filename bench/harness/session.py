"""Session of a benchmark: its options, its parts with the time that is left, and its sure end."""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from harness.processes import end_descendants
from harness.table import Line, Manner, Printer, Row

# prctl(2): orphans below this process become its children, and can be ended.
_PR_SET_CHILD_SUBREAPER = 36
_TELLS_EVERY_S = 20.0
_PACE = (0.2, 5.0)
# Of the usual time, what a quick run takes that is not only of fewer rounds.
_QUICK = 0.2
# Of why a part failed, what stands in its row; standard error has the whole.
_WHY_CHARS = 160


class TerminatedError(BaseException):
    """A signal asks this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a benchmark, and about how long it takes with the usual options."""

    name: str
    seconds: float
    measure: Callable[[argparse.Namespace], Iterable[Line]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark: what it measures, in which parts, and with which options."""

    about: str
    parts: Sequence[Part]
    # Windows, rounds or runs of which the median is taken, and the length of a window; 0: no such.
    repeats: int = 0
    seconds: float = 0.0
    add_options: Callable[[argparse.ArgumentParser], object] = lambda _: None
    # Values of options with which it is over soon; empty: it has no such manner.
    quick: Mapping[str, object] = field(default_factory=dict)

    def parser(self, name: str) -> argparse.ArgumentParser:
        """Return the parser of its command line."""
        parser = argparse.ArgumentParser(
            f"bench {name}",
            description=self.about,
            epilog=self._durations(),
            formatter_class=_HelpFormatter,
        )
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--json", action="store_true", help="print all rows at the end, as JSON")
        how.add_argument("--markdown", action="store_true", help="the same as a table")
        names = [part.name for part in self.parts]
        if len(names) > 1:
            words = "some of the parts that are named below"
            parser.add_argument(
                "--only", nargs="+", action="extend", choices=names, metavar="PART", help=words
            )
        if self.repeats:
            words = "rounds to take the median of"
            parser.add_argument(
                "--repeats", type=int, default=self.repeats, metavar="N", help=words
            )
        if self.seconds:
            words = "length of a window"
            parser.add_argument(
                "--seconds", type=float, default=self.seconds, metavar="S", help=words
            )
        if self.quick:
            words = " ".join(_as_typed(name, value) for name, value in self.quick.items())
            parser.add_argument("--quick", action="store_true", help=f"as {words}")
        self.add_options(parser)
        return parser

    def share_of_usual(self, options: argparse.Namespace) -> float:
        """Return about how long it takes with some options, 1 being as long as usual."""
        usual = self.repeats or 1
        share = float(getattr(options, "repeats", usual)) / usual
        shortened = getattr(options, "quick", False) and set(self.quick) - {"repeats"}
        return share * _QUICK if shortened else share

    def _durations(self) -> str:
        """Return what says how long it takes, and each of its parts."""
        whole = _clock(sum(part.seconds for part in self.parts))
        told = f"It takes about {whole} (minutes:seconds), on two processors that do little else"
        if len(self.parts) < 2:
            return f"{told}."
        parts = ", ".join(f"{_quoted(part.name)} {_clock(part.seconds)}" for part in self.parts)
        return textwrap.fill(f"{told}. Its parts: {parts}.", 100, break_on_hyphens=False)

    def options(self, name: str, words: Sequence[str]) -> argparse.Namespace:
        """Return what a command line asks for."""
        parser = self.parser(name)
        given = parser.parse_args(words)
        if self.quick and given.quick:
            # What is typed beside --quick holds.
            parser.set_defaults(**self.quick)
            given = parser.parse_args(words)
        return given


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help with the text as it is written, and with the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        unset = action.default in (None, False, "", argparse.SUPPRESS)
        return action.help if unset else f"{action.help or ''} (default: %(default)s)"


def _as_typed(name: str, value: object) -> str:
    words = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return " ".join([f"--{name.replace('_', '-')}", *map(str, words)])


def _quoted(name: str) -> str:
    return f"'{name}'" if " " in name else name


class Progress:
    """Progress of a session, told on standard error: what is measured, and how long all takes."""

    def __init__(self, parts: Sequence[Part], scale: float) -> None:
        self._parts, self._scale = parts, scale
        self._began_s = self._part_began_s = time.monotonic()
        self._at = 0
        self._over = threading.Event()

    def begin(self, at: int) -> None:
        """Tell that a part begins."""
        self._at, self._part_began_s = at, time.monotonic()
        self._tell()

    def left_s(self, now_s: float) -> tuple[float, float]:
        """Return about how long this part and those after it take, at the pace of those before."""
        usual = [part.seconds * self._scale for part in self._parts]
        over_s = sum(usual[: self._at])
        pace = 1.0
        if over_s:
            spent_s = self._part_began_s - self._began_s
            pace = min(_PACE[1], max(_PACE[0], spent_s / over_s))
        here_s = max(0.0, usual[self._at] * pace - (now_s - self._part_began_s))
        return here_s, sum(usual[self._at + 1 :]) * pace

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell it now and then meanwhile."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()

    def _run(self) -> None:
        while not self._over.wait(_TELLS_EVERY_S):
            self._tell()

    def _tell(self) -> None:
        now_s = time.monotonic()
        gone, where = _clock(now_s - self._began_s), f"{self._at + 1} of {len(self._parts)}"
        told = f"{where}, {self._parts[self._at].name}; {gone} gone, {self._left(now_s)}"
        print(f"[{told}]", file=sys.stderr, flush=True)

    def _left(self, now_s: float) -> str:
        here_s, after_s = self.left_s(now_s)
        if here_s:
            return f"about {_clock(here_s + after_s)} left"
        after = f", and about {_clock(after_s)} after it" if after_s else ""
        return f"this takes longer than usual{after}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def run(benchmark: Benchmark, name: str, words: Sequence[str]) -> int:
    """Measure what a command line asks for, and end what that has started; return the status.

    It is for the process of a benchmark alone: it ends all processes below this one.
    """
    try:
        with everything_ends():
            return measure(benchmark, name, words)
    except (TerminatedError, KeyboardInterrupt) as end:
        print(f"ended early: {end or 'Ctrl-C'}", file=sys.stderr, flush=True)
        return end.status if isinstance(end, TerminatedError) else 128 + signal.SIGINT


def measure(benchmark: Benchmark, name: str, words: Sequence[str]) -> int:
    """Measure what a command line asks for, and print it; return the exit status."""
    options = benchmark.options(name, words)
    asked = getattr(options, "only", None)
    parts = [part for part in benchmark.parts if asked is None or part.name in asked]
    progress = Progress(parts, benchmark.share_of_usual(options))
    manner = Manner.JSON if options.json else Manner.AT_ONCE
    printer = Printer(Manner.MARKDOWN if options.markdown else manner)
    try:
        with progress.told():
            failed = [
                _failed(part, at, options, printer, progress) for at, part in enumerate(parts)
            ]
    finally:
        printer.close()
    return 1 if any(failed) else 0


def _failed(
    part: Part, at: int, options: argparse.Namespace, printer: Printer, progress: Progress
) -> bool:
    progress.begin(at)
    try:
        for line in part.measure(options):
            printer.add(line)
    # What the others took minutes for is measured and shown all the same.
    except (SystemExit, Exception) as error:  # noqa: BLE001 - the supervisor of all parts
        if not isinstance(error, SystemExit | subprocess.SubprocessError):
            traceback.print_exception(error)
        print(f"{part.name}: {error}", file=sys.stderr, flush=True)
        why = (str(error).splitlines() or [type(error).__name__])[0][:_WHY_CHARS]
        name = f"{part.name}: FAILED, not measured: {why}"
        printer.add(Row(name=name, value=0.0, unit="", met=False))
        return True
    return False


@contextmanager
def everything_ends() -> Iterator[None]:
    """End all that was started meanwhile when it is over, also by SIGTERM, SIGHUP or Ctrl-C."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, _terminate)
    try:
        yield
    finally:
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        end_descendants(os.getpid())


def _terminate(number: int, _: FrameType | None) -> None:
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    raise TerminatedError(number)
