"""Rank reader: asks one rank's process what it can tell while it hangs or steps, in a deadline.

Whatever does not answer is evidence too: the report says what is missing, and why.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from everstep.launch.inspection.question import Answer, Question, RankAsked, Seen
from everstep.launch.inspection.rank_files import Marker, marker, rank_process
from everstep.launch.inspection.sources import (
    libraries,
    native_stacks,
    open_files,
    process_look,
    python_stacks,
)
from everstep.launch.inspection.sources.dump_files import report_of_files
from everstep.launch.inspection.sources.gil_wait import (
    LOOKS_S,
    ThreadLook,
    thread_look,
    waits_for_gil,
)
from everstep.launch.inspection.sources.process_look import GoneError, ProcessLook
from everstep.launch.inspection.sources.rank_calls import noted_calls
from everstep.launch.inspection.sources.ras_client import ask_ras
from everstep.launch.inspection.sources.recorders import read_recorders
from everstep.launch.inspection.sources.worker_server import (
    NoAnswerError,
    SilentError,
    StrangerError,
    WorkerServer,
)
from everstep_common.clock import boot_ns
from everstep_common.hangs.ras_answer import RasError
from everstep_common.hangs.reports.rank_report import (
    BLIND_MAX,
    LIBRARIES_MAX,
    Blind,
    EvidenceSource,
    Library,
    ProcessFacts,
    ProcessState,
    RankHangReport,
    StackFrames,
)

# A ping is answered within a millisecond, on a busy node within a few scheduling rounds.
_PING_S = 0.5
_RECORDER_S = 0.6
# Nothing else is asked of a rank that steps.
_RECENT_RECORDER_S = 1.2
# Beyond this the GIL is held: the interpreter gives it up every 5 ms where somebody wants it. A
# shorter silence is no evidence.
_GIL_S, _GIL_LEAST_S = 0.9, 0.5
# What follows the question for the GIL: a ping, the stacks, and the second look.
_AFTER_GIL_S = 0.3
_PING_LEAST_S = 0.1
_SIGNAL_S = 0.2
_PY_SPY_S = 0.5
# An answer may still come, but the second look at the process has to be taken.
_POLL_S, _SECOND_LOOK_S = 0.05, 0.1
# Two looks at a process are so far apart at least; a tick of its times is 10 ms.
_LOOKS_S = 0.25
_STACKS_BYTES = 256 * 1024
# Where the GIL is held, each question keeps one of the server's 8 threads until it is given up.
_UNANSWERED_MAX = 3
# State of a socket in /proc/net/unix (SS_CONNECTED).
_CONNECTED = "03"


class RankReader:
    """Reader of one rank."""

    def __init__(
        self, asked: RankAsked, question: Question, ends_s: float, proc: Path = Path("/proc")
    ) -> None:
        """``ends_s`` is when all has to be read, on the monotonic clock."""
        self._asked = asked
        self._question = question
        self._ends_s = ends_s
        self._proc = proc
        self._folder = Path(question.folder) if question.folder else None
        self._pid = rank_process(asked.pid, self._folder, proc, max(0, asked.watch_process))
        self._blind: dict[EvidenceSource, str] = {}
        self._libraries: tuple[Library, ...] = ()
        self._recorded = RankHangReport(rank=asked.rank, world_size=question.world_size)
        self._process = ProcessFacts()
        # What its watch thread was seen to do first, and whether it waits for the GIL.
        self._watch: ThreadLook | None = None
        self._watch_waits = asked.waits_for_gil

    def read(self) -> Answer:
        """Return what can be known of the rank."""
        if self._asked.dump or self._asked.ras:
            return self._read_left()
        if self._question.recent:
            self._read_recent()
            return self._answer(None)
        try:
            first = self._look()
            if process_look.owner(self._pid, self._proc) != os.geteuid():
                self._blind[EvidenceSource.IDENTITY] = "the process belongs to another user"
                self._process = ProcessFacts(state=first.state, wchan=first.wchan)
                return self._answer(None)
            listed = self._start_libraries()
            if first.state is ProcessState.STOPPED:
                # Nobody waits for the answers of a process that does not run.
                for source in (EvidenceSource.WORKER_SERVER, EvidenceSource.PYTHON_STACK):
                    self._blind[source] = "the process is stopped, and was not asked"
            else:
                self._ask_rank()
            seen = self._look_again(first)
            listed.join(max(0.0, self._left(1.0)))
        except GoneError:
            self._process = replace(self._process, state=ProcessState.DEAD)
            return self._answer(None)
        return self._answer(seen)

    def _answer(self, seen: Seen | None) -> Answer:
        blind = tuple(Blind(source, reason[:500]) for source, reason in self._blind.items())
        known = {library.name: library for library in self._recorded.libraries}
        known |= {library.name: library for library in self._libraries if library.version}
        report = replace(
            self._recorded,
            node=self._question.node,
            pid=self._pid,
            step=self._asked.step,
            phase=self._asked.phase,
            taken_ns=time.time_ns(),
            process=self._process,
            libraries=tuple(known[name] for name in sorted(known))[:LIBRARIES_MAX],
            blind=(*self._recorded.blind, *blind)[:BLIND_MAX],
        )
        return Answer(report, self._asked.pid, seen)

    def _read_left(self) -> Answer:
        """Return what was left behind by the rank, and by NCCL."""
        question, rank = self._question, self._asked.rank
        report = RankHangReport(rank=rank, world_size=question.world_size)
        if self._asked.dump:
            noted = noted_calls(self._asked.page)
            report = report_of_files(
                question.dumps, rank, question.since_ns, question.world_size, noted
            )
        if self._asked.ras:
            try:
                report = replace(report, ras=ask_ras(question.ras, question.pids, self._left(9.0)))
            except RasError as error:
                blind = Blind(EvidenceSource.NCCL_RAS, str(error)[:500])
                report = replace(report, blind=(*report.blind, blind))
        report = replace(report, node=question.node, taken_ns=time.time_ns())
        return Answer(report, self._asked.pid, None)

    def _read_recent(self) -> None:
        """Read when it enqueued its newest collectives: of a rank that steps nothing else is asked.

        Torch's recorder takes a C++ thread of the rank 5 to 40 ms for it, and never the GIL.
        """
        try:
            if process_look.owner(self._pid, self._proc) != os.geteuid():
                raise StrangerError("the process belongs to another user")
            if (server := self._server()) is not None:
                server.ask("ping", self._left(_PING_S), 1024)
                self._read_recorder(server)
        except GoneError as error:
            self._blind[EvidenceSource.PROCESS_STATE] = str(error)
        except StrangerError as error:
            self._blind[EvidenceSource.IDENTITY] = str(error)
        except NoAnswerError as error:
            self._blind[EvidenceSource.WORKER_SERVER] = str(error)

    def _left(self, most_s: float) -> float:
        return min(most_s, self._ends_s - time.monotonic())

    # The process, as the kernel shows it.

    def _look(self) -> ProcessLook:
        return process_look.look(self._pid, boot_ns(), self._proc)

    def _look_again(self, first: ProcessLook) -> Seen:
        passed_s = (boot_ns() - first.at_ns) / 1e9
        time.sleep(max(0.0, self._left(_LOOKS_S - passed_s)))
        second = self._look()
        if second.started_ticks != first.started_ticks:
            raise GoneError
        since_ns = self._since_ns(first) if second.stands_like(first) else second.at_ns
        unchanged = second.same_stack(first)
        if unchanged is None:
            why = process_look.why_unreadable(self._pid, self._proc)
            self._blind[EvidenceSource.NATIVE_STACK] = why
            if not second.wchan and second.state != ProcessState.RUNNING:
                self._blind[EvidenceSource.PROCESS_STATE] = f"wchan: {why}"
        waits = open_files.waited_file(self._pid, second.syscall, self._proc)
        self._process = replace(
            self._process,
            state=second.state,
            state_for_ms=(second.at_ns - since_ns) // 1_000_000,
            wchan=second.wchan,
            file=waits.path,
            mount=waits.mount,
            devices=open_files.open_devices(self._pid, self._proc),
            native_stack=self._native_stack(second),
            native_stack_unchanged=unchanged,
            cpu_percent=process_look.cpu_percent(first, second),
            written_bytes=self._since_before(first, second, lambda one: one.written_bytes),
            page_faults=self._since_before(first, second, lambda one: one.faults),
        )
        return Seen(
            second.state,
            second.started_ticks,
            second.switches,
            second.user_ticks,
            since_ns,
            second.written_bytes,
            second.faults,
        )

    def _since_before(
        self,
        first: ProcessLook,
        second: ProcessLook,
        counted: Callable[[ProcessLook | Seen], int],
    ) -> int | None:
        """Return how much a count has grown since the look before these two, or since the first.

        Data that is sent slowly leaves in pieces, of which a single look may see none.
        """
        seen = self._asked.seen
        same = seen is not None and seen.started_ticks == first.started_ticks
        before = counted(seen) if seen is not None and same else -1
        return process_look.grown(before, counted(first), counted(second))

    def _native_stack(self, look: ProcessLook) -> StackFrames:
        if look.state is not ProcessState.SLEEPING or not look.syscall:
            return ()
        # While it runs, the kernel tells no stack pointer.
        # A hostile rank's stack pointer is no place in a file.
        with contextlib.suppress(OSError, ValueError, LookupError, OverflowError):
            return native_stacks.libraries_on_stack(self._pid, look.syscall, self._proc)
        return ()

    def _since_ns(self, first: ProcessLook) -> int:
        """Return since when it has not run, if it has not since the look before these two."""
        seen = self._asked.seen
        now = (first.state, first.started_ticks, first.switches, first.user_ticks)
        if seen is None or first.switches < 0:
            return first.at_ns
        before = (seen.state, seen.started_ticks, seen.switches, seen.user_ticks)
        return seen.since_ns if now == before else first.at_ns

    def _start_libraries(self) -> threading.Thread:
        """Read versions beside all else: their files may be on a file system that hangs."""
        self._blind[EvidenceSource.LIBRARIES] = "not read in time"
        thread = threading.Thread(target=self._read_libraries, daemon=True)
        thread.start()
        return thread

    def _read_libraries(self) -> None:
        try:
            mapped = libraries.mapped(self._pid, self._proc)
            self._libraries = libraries.with_machine(libraries.libraries(mapped))
            self._blind.pop(EvidenceSource.LIBRARIES, None)
        except OSError as error:
            why = process_look.why_unreadable(self._pid, self._proc)
            self._blind[EvidenceSource.LIBRARIES] = f"maps: {error.strerror}: {why}"

    # What the process answers itself.

    def _ask_rank(self) -> None:
        self._watch = self._look_at_watch()
        self._ask_server()
        self._read_stack()
        self._confirm_gil()

    def _ask_server(self) -> None:
        server = self._server()
        answers = server is not None and self._ping(server)
        if server is not None and answers:
            self._read_recorder(server)
        if self._watch_waits:
            self._process = replace(self._process, gil_held=True)
        elif server is None and self._asked.watch_thread > 0 and not self._asked.unheard_ms:
            self._process = replace(self._process, gil_held=False)  # its Python runs
        elif server is not None and answers:
            self._probe_gil(server)

    def _server(self) -> WorkerServer | None:
        path = self._folder / f"{self._pid}.sock" if self._folder is not None else None
        if path is not None and path.exists():
            return WorkerServer(path, self._pid)
        self._blind[EvidenceSource.WORKER_SERVER] = self._marker().why or _NO_SERVER
        return None

    def _look_at_watch(self) -> ThreadLook | None:
        thread = self._asked.watch_thread
        return thread_look(self._pid, thread, boot_ns(), self._proc) if thread else None

    def _waits_for_gil(self) -> bool | None:
        """Return whether its watch waits for the GIL; None where that cannot be seen."""
        if self._watch is None:
            return None
        passed_s = (boot_ns() - self._watch.at_ns) / 1e9
        time.sleep(max(0.0, self._left(LOOKS_S - passed_s)))
        now = self._look_at_watch()
        return waits_for_gil(self._watch, now) if now is not None else None

    def _ping(self, server: WorkerServer) -> bool:
        if (within_s := self._left(_PING_S)) < _PING_LEAST_S:
            self._blind[EvidenceSource.WORKER_SERVER] = (
                "other answers took too long to ask it again"
            )
            return False
        try:
            server.ask("ping", within_s, 1024)
        except SilentError:
            self._process = replace(self._process, answers_ping=False)
            return False
        except StrangerError as error:
            self._blind[EvidenceSource.IDENTITY] = str(error)
            return False
        except NoAnswerError as error:
            self._blind[EvidenceSource.WORKER_SERVER] = str(error)
            return False
        self._process = replace(self._process, answers_ping=True)
        return True

    def _read_recorder(self, server: WorkerServer) -> None:
        rank, world_size = self._asked.rank, self._question.world_size
        recent = self._question.recent
        noted = None if recent else noted_calls(self._asked.page)
        within_s = self._left(_RECENT_RECORDER_S if recent else _RECORDER_S)
        found, missing = read_recorders(server, within_s, rank, world_size, noted)
        self._recorded = found or self._recorded
        if missing and (found is None or not recent):
            self._blind[EvidenceSource.FLIGHT_RECORDER] = missing

    def _probe_gil(self, server: WorkerServer) -> None:
        """Ask what needs the GIL, and with it for the stacks."""
        asked_before = self._unanswered() or 0
        within_s = self._left(_GIL_S + _AFTER_GIL_S) - _AFTER_GIL_S
        if asked_before >= _UNANSWERED_MAX or (asked_before and within_s < _GIL_LEAST_S):
            self._take_silence()
            return
        if within_s < _GIL_LEAST_S:
            self._blind[EvidenceSource.GIL] = "other answers took too long to ask for it"
            return
        try:
            text = server.ask("dump_traceback", within_s, _STACKS_BYTES)
        except SilentError:
            self._ping(server)
            self._take_silence()
        except NoAnswerError as error:
            self._blind[EvidenceSource.GIL] = str(error)
        else:
            stack = python_stacks.main_stack(text.decode(errors="replace"))
            self._process = replace(self._process, gil_held=False, python_stack=stack)

    def _take_silence(self) -> None:
        """What needs the GIL got no answer: somebody holds it, or the node is busy."""
        if self._watch is None and self._process.answers_ping:
            self._process = replace(self._process, gil_held=True)
        elif self._waits_for_gil():
            self._watch_waits = True
            self._process = replace(self._process, gil_held=True)
        else:
            self._blind[EvidenceSource.GIL] = _LATE_ANSWER

    def _confirm_gil(self) -> None:
        """Wait for an answer that comes late, as on a node without a free processor."""
        until_s = time.monotonic() + min(_GIL_S, self._left(_GIL_S) - _SECOND_LOOK_S)
        seen = self._watch_waits
        while self._process.gil_held and not seen and time.monotonic() < until_s:
            if self._unanswered() == 0:
                self._process = replace(self._process, gil_held=False)
            else:
                time.sleep(_POLL_S)
        if self._process.gil_held:
            held_ms = max(0, self._asked.unheard_ms)
            self._process = replace(self._process, gil_held_ms=held_ms)
            python_stacks.remove_unanswered(self._pid, self._proc)

    def _unanswered(self) -> int | None:
        """Return how many questions the server still has: it closes what it answers."""
        assert self._folder is not None
        path = f"/{self._folder.name}/{self._pid}.sock"
        with contextlib.suppress(OSError):
            sockets = (self._proc / str(self._pid) / "net/unix").read_text(errors="replace")
            rows = [line.split() for line in sockets.splitlines() if line.endswith(path)]
            return sum(row[5] == _CONNECTED for row in rows)
        return None

    def _marker(self) -> Marker:
        return marker(self._folder, self._pid) if self._folder else Marker()

    # The stack of a process that does not tell it.

    def _read_stack(self) -> None:
        if self._process.python_stack:
            return
        reasons = []
        for read in (self._stack_by_signal, self._stack_by_py_spy):
            try:
                stack = read()
            except (OSError, ValueError) as error:
                reasons.append(str(error))
                continue
            self._process = replace(self._process, python_stack=stack)
            return
        self._blind[EvidenceSource.PYTHON_STACK] = "; ".join(reasons)

    def _stack_by_signal(self) -> StackFrames:
        if self._process.answers_ping is not True or self._folder is None:
            raise ValueError("its worker server does not answer")
        told = self._marker()
        if not told.stacks:
            raise ValueError("its script handles the signal for stacks itself")
        path, within_s = self._folder / f"{self._pid}.stacks", self._left(_SIGNAL_S)
        return python_stacks.by_signal(self._pid, path, within_s, self._proc, told.thread)

    def _stack_by_py_spy(self) -> StackFrames:
        if not self._question.py_spy:
            raise ValueError("py-spy is not installed beside everstep")
        try:
            return python_stacks.by_py_spy(self._question.py_spy, self._pid, self._left(_PY_SPY_S))
        except ValueError as error:
            why = process_look.why_unreadable(self._pid, self._proc)
            raise ValueError(f"{error} ({why})") from error


_LATE_ANSWER = "the answer took too long, and no thread was seen to wait for the GIL"
_NO_SERVER = (
    "the rank has no worker server: it has made no process group of torch.distributed, or its"
    " interpreter ignores PYTHONPATH (-I, -E)"
)
