"""Frontier watch: a thread of a rank that sees twice a second whether its collectives go on.

It reads how many operations each process group has enqueued and completed, as torch's recorder
counts them anyway; the launcher reads the rank's page and judges. Run in the rank by its own
interpreter, from 3.8 on, with the standard library only.
"""

import json
import os
import sys
import threading
import time

if __package__:
    from everstep.rank.interpreter import everstep_rank_page as page_of
    from everstep.rank.interpreter.everstep_rank_calls import note_calls
else:  # in a rank, whose interpreter need not have everstep
    import everstep_rank_page as page_of  # type: ignore[import-not-found, no-redef]
    from everstep_rank_calls import note_calls  # type: ignore[import-not-found, no-redef]

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing's, whose import takes milliseconds
    from collections.abc import Callable
    from types import FrameType, ModuleType

_INTERVAL_S = 0.5
# Of a group of 16,384 ranks, torch writes the list of them too: reading takes no more of a
# processor than a thousandth.
_INTERVAL_PER_COST = 1000
_INTERVAL_MAX_S = 2.0
# What a reading costs is a running mean, in which the newest has this share.
_NEWEST_SHARE = 0.1
# Gaps between the first moves are those of a start: files, libraries, compilation.
WARM_MOVES = 6
# A longer gap that ended well is a debugger's or a suspended node's.
GAP_MAX_NS = 300 * 10**9
# What is longer than so many times the longest gap of a phase of which some are known, and than
# 3 s, is no part of its rhythm but an evaluation or a save, unless it comes again soon: whoever
# looks at ranks that stand still knows how long is usual where they stand.
_STAND_TIMES, _STAND_LEAST_NS = 4, 3 * 10**9
_GAPS_KNOWN = 3
_STANDS_OF_RHYTHM, _STANDS_WITHIN = 3, 64
# The longest of so many gaps, and of as many before them, is that of a phase.
_GAPS_KEPT = 512
# While nothing moves for so long, the stacks tell whether the rank compiles or saves.
_LOOK_NS = 900_000_000
# Functions that are on a stack only while torch or triton compiles, or writes a checkpoint.
_COMPILING = (
    ("torch/_dynamo/convert_frame.py", ("_compile", "compile_inner")),
    ("torch/_inductor/compile_fx.py", ("compile_fx", "compile_fx_inner", "_compile_fx_inner")),
    ("torch/_inductor/async_compile.py", ("wait",)),
    ("torch/_inductor/runtime/triton_heuristics.py", ("precompile", "autotune_to_one_config")),
    ("triton/compiler/compiler.py", ("compile",)),
)
_SAVING = (
    ("torch/serialization.py", ("save", "_save", "load", "_load")),
    ("torch/distributed/checkpoint/state_dict_saver.py", ("save", "_save_state_dict")),
    ("torch/distributed/checkpoint/state_dict_loader.py", ("load", "_load_state_dict")),
    ("safetensors/torch.py", ("save_file", "save_model", "load_file", "load_model")),
)
_ENDING = (("torch/distributed/distributed_c10d.py", ("destroy_process_group",)),)
_FRAMES_MAX = 200


class PhaseGaps:
    """Rhythm of the moves in one phase: the longest gap of the newest ones. Pure."""

    def __init__(self) -> None:
        self.count = 0
        self._newest_ns = self._before_ns = 0
        # Which of them were stands, by their number; the newest ones.
        self._stands: list[int] = []

    @property
    def longest_ns(self) -> int:
        """The longest gap that belongs to the rhythm; 0: none is known."""
        return max(self._newest_ns, self._before_ns)

    def add(self, gap_ns: int) -> None:
        """Take a gap, which a stand is not, unless it has come again soon."""
        self.count += 1
        if self.count % _GAPS_KEPT == 0:
            self._before_ns, self._newest_ns = self._newest_ns, 0
        if self._is_stand(gap_ns):
            self._stands = [*self._stands, self.count][-_STANDS_OF_RHYTHM:]
            soon = self.count - self._stands[0] < _STANDS_WITHIN
            if len(self._stands) < _STANDS_OF_RHYTHM or not soon:
                return
        self._newest_ns = max(self._newest_ns, gap_ns)

    def _is_stand(self, gap_ns: int) -> bool:
        usual_ns = max(_STAND_LEAST_NS, _STAND_TIMES * self.longest_ns)
        return self.count > _GAPS_KNOWN and gap_ns > usual_ns


class GapMemory:
    """Gaps between the moves of one rank's frontier, learned by phase. Pure."""

    def __init__(self) -> None:
        self.moves = 0
        self.moved_ns = 0
        self.longest_ns = 0
        self.phases = [PhaseGaps() for _ in range(page_of.PHASES)]
        self._frontier = (0, 0)
        # Phases in which the rank was since the last move; whether that gap teaches anything.
        self._phases = 0
        self._paused = False

    def observe(self, now_ns: int, frontier: "tuple[int, int]", phases: int, paused: bool) -> bool:
        """Take one reading; return whether it has moved.

        ``phases`` has a bit for each phase in which the rank was since the reading before.
        """
        self._phases |= phases
        self._paused = self._paused or paused
        if frontier == self._frontier:
            return False
        if self.moves >= WARM_MOVES and not self._paused:
            self._learn(min(now_ns - self.moved_ns, GAP_MAX_NS))
        self.moves += 1
        self.moved_ns, self._frontier = now_ns, frontier
        self._phases, self._paused = 0, paused
        return True

    def _learn(self, gap_ns: int) -> None:
        self.longest_ns = max(self.longest_ns, gap_ns)
        for phase in range(page_of.PHASES):
            if self._phases >> phase & 1:
                self.phases[phase].add(gap_ns)


def frontier_of(dump: bytes) -> "tuple[int, int]":
    """Return how many operations all groups together have enqueued and completed.

    Raises ValueError, LookupError, TypeError and AttributeError for what is no dump.
    """
    enqueued = completed = 0
    for status in json.loads(dump).get("pg_status", {}).values():
        enqueued += int(status["last_enqueued_collective"])
        completed += int(status["last_completed_collective"])
    return enqueued, completed


def activity_of(frames: "dict[int, FrameType]") -> int:
    """Return what a process's threads do that is no step, as the page's word ACTIVITY has it."""
    found = 0
    for top in frames.values():
        frame: FrameType | None = top
        for _ in range(_FRAMES_MAX):
            if frame is None:
                break
            code = frame.f_code
            if _among(_COMPILING, code.co_filename, code.co_name):
                return 1
            if _among(_SAVING, code.co_filename, code.co_name):
                found = 2
            if not found and _among(_ENDING, code.co_filename, code.co_name):
                found = page_of.GROUPS_END
            frame = frame.f_back
    return found


def _among(places: "tuple[tuple[str, tuple[str, ...]], ...]", path: str, name: str) -> bool:
    return any(name in names and path.endswith(file) for file, names in places)


class FrontierWatch:
    """The thread's work: a reading, what is learned of it, and the rank's page."""

    def __init__(
        self,
        page: page_of.Page,
        read: "Callable[[], tuple[int, int]]",
        frames: "Callable[[], dict[int, FrameType]]" = sys._current_frames,
        has_groups: "Callable[[], bool]" = lambda: True,
    ) -> None:
        """``has_groups`` returns whether the rank has process groups at this moment."""
        self._page = page
        self._read = read
        self._frames = frames
        self._has_groups = has_groups
        self._had_groups = self._over = False
        self._memory = GapMemory()
        self._entries = [0] * page_of.PHASES

    def read_once(self, now_ns: int) -> None:
        """Read once. Raises whatever torch raises."""
        words, memory = self._page.words, self._memory
        frontier = self._read()
        activity = self._end()
        if not words[page_of.PAUSES] and now_ns - memory.moved_ns >= _LOOK_NS:
            activity = activity or activity_of(self._frames())
        paused = words[page_of.PAUSES] > 0 or activity > 0
        moved = memory.observe(now_ns, frontier, self._phases(), paused)
        if not self._over:  # else it is written already
            words[page_of.ACTIVITY] = activity
        if moved:
            self._write(frontier)
        words[page_of.READ_AT] = now_ns

    def begin(self) -> None:
        """Tell which thread watches: the caller's."""
        self._page.words[page_of.WATCH_THREAD] = threading.get_native_id()

    def end(self) -> None:
        """Tell that nobody watches any more: silence means nothing from now on."""
        self._page.words[page_of.WATCH_THREAD] = 0

    def end_script(self) -> None:
        """Tell that the script is over: nothing moves any more, and that is as it should be."""
        self._over = True
        self._page.words[page_of.ACTIVITY] = page_of.SCRIPT_END

    def _end(self) -> int:
        """Return by what the rank is at its end; 0: it is not."""
        has_groups = self._has_groups()
        self._had_groups = self._had_groups or has_groups
        ended = self._had_groups and not has_groups
        return page_of.SCRIPT_END if self._over else page_of.GROUPS_END if ended else 0

    def _phases(self) -> int:
        """Return in which phases the rank was since the last time, as bits."""
        words = self._page.words
        found = 1 << (words[page_of.PHASE] % page_of.PHASES)
        for phase in range(page_of.PHASES):
            entries = words[page_of.ENTRIES + phase]
            if entries != self._entries[phase]:
                self._entries[phase] = entries
                found |= 1 << phase
        return found

    def _write(self, frontier: "tuple[int, int]") -> None:
        words, memory = self._page.words, self._memory
        words[page_of.ENQUEUED], words[page_of.COMPLETED] = frontier
        words[page_of.LONGEST] = memory.longest_ns
        for phase, known in enumerate(memory.phases):
            words[page_of.GAPS + phase] = known.longest_ns
            words[page_of.COUNTS + phase] = known.count
        words[page_of.MOVES], words[page_of.MOVED_AT] = memory.moves, memory.moved_ns


def reader_of(c10d: "ModuleType") -> "Callable[[], tuple[int, int]] | None":
    """Return what reads the frontier from torch's recorders; None where it has none."""
    names = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
    dumps = [getattr(c10d, name) for name in names if hasattr(c10d, name)]
    if not dumps:
        return None

    def read() -> "tuple[int, int]":
        found = [frontier_of(dump(includeCollectives=False)) for dump in dumps]
        return sum(one[0] for one in found), sum(one[1] for one in found)

    return read


def _groups_asker() -> "Callable[[], bool]":
    """Return what tells whether this process has process groups."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    asker: Callable[[], bool] = getattr(module, "is_initialized", lambda: True)
    return asker


def start(c10d: "ModuleType") -> None:
    """Watch this process for as long as it lives. Raises NoPageError, and what threads raise."""
    import atexit

    read = reader_of(c10d)
    if read is None:
        return
    page = page_of.Page(os.environ, page_of.WATCH_PID)
    watch = FrontierWatch(page, read, has_groups=_groups_asker())
    note_calls(c10d, page)
    over = threading.Event()
    thread = threading.Thread(
        target=_run, args=(watch, over), name="everstep-frontier", daemon=True
    )

    pid = os.getpid()

    def end_script() -> None:
        if os.getpid() == pid:  # a forked child is not the rank
            watch.end_script()

    def end() -> None:
        # A thread that comes back from torch into an interpreter that is gone ends the process.
        if os.getpid() == pid:  # a forked child has no thread, and maybe its lock for ever
            watch.end_script()
            over.set()
            thread.join(1.0)

    _at_end_of_script(end_script)
    atexit.register(end)
    thread.start()


def _at_end_of_script(function: "Callable[[], None]") -> None:
    """Have it called before the interpreter waits for threads and calls what is to be at its end.

    Python has it for its own pools, from 3.9 on.
    """
    register: Callable[[Callable[[], None]], object] | None
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(function)


def _run(watch: FrontierWatch, over: threading.Event) -> None:
    watch.begin()
    try:
        _watch(watch, over)
    finally:
        watch.end()


def _watch(watch: FrontierWatch, over: threading.Event) -> None:
    usual_s = 0.0
    while not over.wait(min(max(_INTERVAL_S, usual_s * _INTERVAL_PER_COST), _INTERVAL_MAX_S)):
        began_s = time.thread_time()
        try:
            watch.read_once(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        except Exception:  # noqa: BLE001 - torch's are of every type; the launcher sees it is blind
            return
        # The first one is slower than all others.
        usual_s += (time.thread_time() - began_s - usual_s) * _NEWEST_SHARE
