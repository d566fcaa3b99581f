"""Rank page: how far a rank is, in a page of its launcher's memory that the launcher reads.

Written by the SDK (step, phase, pause), by the watch of torch's recorder (frontier), by the watch
of the GIL, and by what notes sends and receives, each its own words. Run in the rank by its own
interpreter, from 3.8 on, with the standard library only.
"""

import mmap
import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing's, whose import takes milliseconds
    from collections.abc import Mapping

# Where a rank finds its page: PATH:OFFSET of memory of its launcher, sealed so that it cannot
# shrink under whoever has it mapped.
PLACE = "EVERSTEP_RANK_PAGE"
BYTES = 4096
# With the ring of calls behind it.
SPAN = 3 * 4096
# "everstep" and the version of the layout; 0 where nobody has written yet.
MAGIC = 0x45565354 << 32 | 1
PHASES = 16
NAME_BYTES = 40

# 64-bit words of the processor's own order, each written whole. Of the SDK:
(LAYOUT, SDK_PID, STEP, STEP_AT, PHASE, PAUSES, OWN) = range(7)
# and of the watch: its thread as the kernel numbers it, 0 where it watches no more; times are
# nanoseconds of the boot clock, gaps nanoseconds.
WATCH_THREAD = 7
(WATCH_PID, READ_AT, MOVED_AT, ENQUEUED, COMPLETED, MOVES, ACTIVITY, LONGEST) = range(8, 16)
# For each phase: how often the rank has entered it, the longest gap in it, how many moves.
ENTRIES, GAPS, COUNTS = 16, 16 + PHASES, 16 + 2 * PHASES
# In bytes: names of the phases, the first of which is "", and of the pause.
NAMES = 8 * (16 + 3 * PHASES)
PAUSE_NAME = NAMES + PHASES * NAME_BYTES
# The role of the rank, as its script told.
ROLE_NAME = PAUSE_NAME + NAME_BYTES
# How many sends and receives were noted, and then the newest of them: when, by the wall clock, and
# the kind above the other end's rank.
CALLS = BYTES // 8
CALLS_MAX = (SPAN - BYTES) // 16 - 1
# Of the watch of the GIL, behind the role: its process, when it last had the GIL, and its thread, 0
# where it watches no more.
(GIL_PID, GIL_AT, GIL_THREAD) = range(160, 163)
SEND, RECV, RECV_ANY = 1, 2, 3
_PARTS = {
    SDK_PID: (STEP, OWN + 1),
    WATCH_PID: (READ_AT, LONGEST + 1),
    GIL_PID: (GIL_AT, GIL_THREAD + 1),
}
# What a rank is seen to do that is no step, by the number in ACTIVITY.
ACTIVITIES = ("", "compilation", "checkpoint")
# And at its end: its process groups are destroyed, or being; its script is over, as far as the
# interpreter is concerned, and what is left is to be taken down.
GROUPS_END, SCRIPT_END = 3, 4


class NoPageError(Exception):
    """This process has no page that it may write."""


class Page:
    """The page of this process, as it is mapped."""

    def __init__(self, environ: "Mapping[str, str]", owner: int) -> None:
        """Claim the part that begins with the word ``owner``. Raises NoPageError."""
        place, _, offset = environ.get(PLACE, "").rpartition(":")
        if not place:
            raise NoPageError("there is no launcher")
        try:
            number = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                memory = mmap.mmap(number, SPAN, offset=int(offset))
            finally:
                os.close(number)
        except (OSError, ValueError) as error:
            raise NoPageError("its page cannot be mapped") from error
        self.bytes = memoryview(memory)
        self.words = self.bytes.cast("q")
        self.pid = os.getpid()
        if not self._claim(owner):
            raise NoPageError("another process of this rank writes it")

    @property
    def usable(self) -> bool:
        """Whether this is the process that opened it, and not its child."""
        return os.getpid() == self.pid

    def _claim(self, owner: int) -> bool:
        before = self.words[owner]
        if before not in (0, self.pid) and _lives(before):
            return False
        first, end = _PARTS[owner]
        self.words[first:end] = memoryview(bytes(8 * (end - first))).cast("q")
        self.words[owner] = self.pid
        self.words[LAYOUT] = MAGIC
        return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def name_bytes(name: str) -> bytes:
    """Return a name of a phase or pause as the page has it."""
    cut = name.encode("utf-8", "replace")[:NAME_BYTES]
    return cut + bytes(NAME_BYTES - len(cut))
