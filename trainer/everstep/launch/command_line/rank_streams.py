"""Rank output options (torchrun's -r and -t): to the terminal, to a file, or to both."""

import contextlib
import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from everstep.launch.command_line.option_parser import UsageError
from everstep.launch.output.log_files import open_folder

OUT, ERROR = 1, 2
_BOTH = OUT | ERROR
_ONE = re.compile(r"[0-3]")
_MAP = re.compile(r"[0-9]+:[0-3](,[0-9]+:[0-3])*")


@dataclass(frozen=True, slots=True)
class StreamChoice:
    """Streams (a sum of OUT and ERROR) of all local ranks, or of those that are named."""

    all: int = 0
    of: Mapping[int, int] = field(default_factory=dict)

    def has(self, local_rank: int, stream: int) -> bool:
        """Return whether a stream of a rank is chosen."""
        return bool(self.of.get(local_rank, self.all) & stream)

    @property
    def any(self) -> bool:
        """Return whether it chooses anything."""
        return bool(self.all or any(self.of.values()))


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Plan of the ranks' output on this node: what is shown, and what goes to files."""

    folder: Path | None = None
    redirects: StreamChoice = field(default_factory=StreamChoice)
    tee: StreamChoice = field(default_factory=StreamChoice)
    # Local ranks that are shown; None shows all.
    shown: frozenset[int] | None = None
    # The folder was made because nobody named one.
    made: bool = False

    @property
    def needs_folder(self) -> bool:
        """Return whether files are wanted, and nobody said where."""
        return self.folder is None and (self.redirects.any or self.tee.any)

    def tidy(self) -> None:
        """Leave no folder of ours in which there is nothing."""
        if self.made and self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def to_file(self, local_rank: int, stream: int) -> bool:
        """Return whether a file gets this stream."""
        chosen = self.redirects.has(local_rank, stream) or self.tee.has(local_rank, stream)
        return self.folder is not None and chosen

    def to_terminal(self, local_rank: int, stream: int) -> bool:
        """Return whether the terminal shows this stream."""
        if self.shown is not None and local_rank not in self.shown:
            return False
        only_file = self.redirects.has(local_rank, stream)
        return self.tee.has(local_rank, stream) or not only_file


def parse_streams(option: str, text: str) -> StreamChoice:
    """Return what ``3`` or ``0:1,1:2`` chooses. Raises UsageError."""
    if _ONE.fullmatch(text):
        return StreamChoice(int(text))
    if _MAP.fullmatch(text):
        pairs = (part.split(":") for part in text.split(","))
        return StreamChoice(0, {int(rank): int(streams) for rank, streams in pairs})
    raise UsageError(
        f"{option} {text!r}: expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or these for"
        " single local ranks, for example 0:3,1:2"
    )


def parse_shown(text: str) -> frozenset[int] | None:
    """Return the local ranks that ``0,2`` names; None where nothing is named. Raises UsageError."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        raise UsageError(f"--local-ranks-filter {text!r}: expected local ranks, for example 0,2")
    return frozenset(map(int, text.split(",")))


def checked_folder(option: str, folder: Path) -> Path:
    """Return a folder for output, made if it is not there. Raises UsageError."""
    try:
        os.close(open_folder(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise UsageError(
            f"{option} {folder}: nothing can be written there ({error.strerror}); name a folder of"
            " yours"
        ) from error
    return folder


def stream_plan(folder: Path | None, redirects: str, tee: str, shown: str) -> StreamPlan:
    """Return what the options ask for. Raises UsageError."""
    return StreamPlan(
        folder,
        parse_streams("--redirects", redirects),
        parse_streams("--tee", tee),
        parse_shown(shown),
    )


def everything_kept(folder: Path, shown: str) -> StreamPlan:
    """Return the plan that shows all, and keeps all in files. Raises UsageError."""
    return StreamPlan(folder, tee=StreamChoice(_BOTH), shown=parse_shown(shown))
