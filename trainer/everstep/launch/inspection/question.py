"""Question to the reader program, and its answers: JSON lines on its standard streams."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Items, Opaque, Text
from everstep_common.hangs.reports.rank_report import ProcessState, RankHangReport

# One process reads so many ranks: a recorder's answer takes it 20 ms, one after another.
RANKS_MAX = 16
# An answer is 1 to 3 KB; its bounds allow for more, in characters that take several bytes.
LINE_MAX = 256 * 1024
Count = Annotated[int, Integer(-1, 2**62)]


@dataclass(frozen=True, slots=True)
class Seen:
    """A look at a process, to be compared with the next one: whether it has run in between."""

    state: ProcessState
    started_ticks: Count
    switches: Count
    user_ticks: Count
    # Since when it has been like that, on the clock of this boot.
    since_ns: q.BootNs
    # What it had written, and its page faults; -1: that could not be read.
    written_bytes: Count = -1
    faults: Count = -1


@dataclass(frozen=True, slots=True)
class RankAsked:
    """A rank to be read: the process that its launcher started for it."""

    rank: q.Rank
    pid: q.Pid
    # What the last look saw.
    seen: Seen | None = None
    # What it has told its launcher: its newest step, and its phase or pause.
    step: q.ToldStep | None = None
    phase: q.Word = ""
    # It has ended: its dump is read, not its process.
    dump: bool = False
    # NCCL RAS is asked beside it, and its process is not read.
    ras: bool = False
    # Its thread that watches the frontier or the GIL, and the process of it; 0: it has none. And
    # whether that has waited for the GIL for seconds, as the launcher saw; and for how long it was
    # not heard of, 0: it was.
    watch_thread: Count = 0
    watch_process: Count = 0
    waits_for_gil: bool = False
    unheard_ms: Count = 0
    # Its page, as PATH:OFFSET; "": it has none.
    page: Annotated[str, Opaque(0, 200, "a page of memory")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What one reader is to do; which ranks, and within which time, `Reading` fills in."""

    ranks: Annotated[tuple[RankAsked, ...], Items(RANKS_MAX)] = ()
    # The folder of the ranks' sockets; "": they have none.
    folder: Annotated[str, Text(4096)] = ""
    within_s: float = 0.0
    node: q.Line = ""
    world_size: q.Ranks = 0
    # How the names of dumps begin, which end with the rank; older ones are of another generation.
    dumps: Annotated[tuple[Annotated[str, Text(4096)], ...], Items(2)] = ()
    since_ns: Count = 0
    # Where NCCL RAS listens, and processes of this job by which its answer is known to be of it.
    ras: Annotated[str, Text(300)] = ""
    pids: Annotated[tuple[q.Pid, ...], Items(q.RANKS_OF_NODE_MAX)] = ()
    # Only when they enqueued their newest collectives: nothing is asked that takes the GIL.
    recent: bool = False
    # Path of py-spy; "": not installed.
    py_spy: Annotated[str, Opaque(0, 4096, "a program")] = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was read of one rank."""

    report: RankHangReport
    # The process that was read is not always the one that the launcher started: a shell's child.
    launched_pid: q.Pid
    seen: Seen | None
