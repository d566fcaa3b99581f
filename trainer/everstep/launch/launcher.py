"""Launcher of ``everstep run``: starts and stops a node's ranks of a job as the agent orders.

One thread and one selector: the ranks' death signal is tied to the thread that started them.
"""

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from everstep.launch.agent_wait import nobody_answers, waits_for_agent, why_expected
from everstep.launch.command_line.options import LaunchOptions
from everstep.launch.generation import LocalGeneration
from everstep.launch.inspection.end_evidence import EndEvidence, EvidencePlaces
from everstep.launch.inspection.inspected import inspected
from everstep.launch.inspection.look_service import LookService
from everstep.launch.inspection.question import Answer
from everstep.launch.inspection.rank_files import RankFiles, rank_notes
from everstep.launch.link import LaunchLink, not_understood
from everstep.launch.membership import LeaveRequest, join_message
from everstep.launch.output.terminal import Terminal
from everstep.launch.processes.rank_failure import RankEnd, last_words
from everstep.launch.rank_recipe import RankRecipe
from everstep.launch.selector_loop import call_ready
from everstep.launch.signals import PASSED_ON, SignalPipe, pass_on
from everstep.launch.standby.pool import StandbyPool
from everstep.launch.standby.schedules import StandbySchedule
from everstep.launch.wait_messages import WaitMessages
from everstep.launch.workers import Workers
from everstep_common.endings import without_memory
from everstep_common.launcher_messages import (
    End,
    Hold,
    Inspect,
    InspectEnd,
    InspectPatiently,
    InspectRecent,
    Join,
    Joined,
    Notice,
    Settled,
    Start,
    Stop,
    StopAfterLook,
)
from everstep_common.preload import Preload
from everstep_common.rank_messages import Refused, RefusedForNow

# While ranks are being stopped their descendants are looked for this often, besides on SIGCHLD.
_STOPPING_POLL_S = 0.1
# EX_TEMPFAIL of sysexits.h: service managers start a launcher again that ends with it.
_EXIT_TEMPORARY = 75
# An agent that is restarted may hang up once or twice; one of another version does it every time.
_UNANSWERED_MAX = 5


class Launcher:
    """Launcher: follows the agent's orders, generation after generation, until the job's end."""

    def __init__(
        self,
        options: LaunchOptions,
        token: str,
        terminal: Terminal,
        environ: Mapping[str, str] = os.environ,
        files: RankFiles | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``files`` is the folder by which ranks that hang are read; None: there is none."""
        self._options = options
        self._token = token
        self._terminal = terminal
        self._selector = selectors.DefaultSelector()
        terminal.follow(self._selector)
        self._link = LaunchLink(options.socket, self._selector, self._heard, monotonic)
        self._standbys = StandbyPool(
            self._selector, terminal, options.standby, Path.cwd(), self._link.send
        )
        self._looks = LookService(
            self._selector,
            files.folder if files else None,
            lambda: self._workers.running(),
            lambda rank: self._generation.watch.facts(rank),
            lambda: self._generation.ending(),
        )
        self._workers = Workers(self._selector, self._rank_ended, self._other_pids)
        places = EvidencePlaces.of(files.folder if files else None, environ, options.ras)
        self._evidence = EndEvidence(self._selector, self._looks, places, monotonic)
        self._files = files
        self._notes = (*options.notes, *rank_notes(environ))
        added = files.environment(environ) if files else {}
        recipe = RankRecipe.of(options, token, {**environ, **added})
        self._generation = LocalGeneration(
            recipe, self._workers, self._standbys, terminal, self._link.send, monotonic
        )
        self._words = WaitMessages(terminal.say, monotonic)
        self._timing = StandbySchedule()
        self._next: Start | None = None
        self._joined = self._alone = False
        # The job goes on without this launcher, as the controller said last.
        self._spare = False
        self._exit_code: int | None = None  # once known, the launcher waits only for its ranks
        self._last_words: list[str] = []
        self._monotonic = monotonic
        self._leaving = LeaveRequest(options, self._link, terminal.say, monotonic)
        # Until then an agent is waited for that has not answered yet; None: one has.
        self._agent_by: float | None = None

    def _other_pids(self) -> set[int]:
        """Return the processes that are ours, and no ranks."""
        return self._standbys.pids() | self._looks.pids() | self._evidence.pids()

    def run(self) -> int:
        """Return the exit code when the job is over or its user has had enough."""
        more = (*PASSED_ON, *self._options.ends_on)
        signals = SignalPipe(self._selector, self._signalled, more)
        try:
            code = self._find_agent()
            code = self._serve() if code is None else code
        finally:
            signals.close()
            self._workers.signal_groups(signal.SIGKILL)
            self._standbys.close()
            self._looks.close()
            self._evidence.close()
            self._link.drop()
        for line in filter(None, (*self._last_words, self._leaving.last_words())):
            self._terminal.say(line)
        return code

    def _find_agent(self) -> int | None:
        """Ask the agent to join; return the exit code where there is none, nor one to wait for."""
        self._link.retry(self._join())
        code = None if self._link.connected else self._wait_for_agent()
        if code is None:
            for note in self._notes:
                self._terminal.say(note)
        return code

    def _wait_for_agent(self) -> int | None:
        """Say that no agent is there; return the exit code where none is waited for."""
        socket, wait_s = self._options.socket, self._options.agent_wait_s
        why = why_expected(socket, self._link.refusal)
        if not why or not wait_s:
            self._terminal.say(nobody_answers(socket, self._link.refusal))
            return _EXIT_TEMPORARY if why else 1
        self._agent_by = self._monotonic() + wait_s
        self._terminal.say(waits_for_agent(socket, why, wait_s))
        return None

    def _serve(self) -> int:
        while self._exit_code is None or not self._generation.stopped or self._awaits_storage():
            call_ready(self._selector, self._wait_s())
            self._generation.steps.advance()
            self._generation.output.advance()
            self._looks.advance()
            self._evidence.advance()
            self._generation.watch.advance(self._generation.steps.of_ranks)
            if self._exit_code is None:
                self._words.say_due()
                self._notice_loss()
                self._link.retry(self._join())
                if self._leaving.due_in_s(stopped=self._generation.stopped) == 0.0:
                    self._leave(self._leaving.asked or signal.SIGTERM)
            if self._generation.advance():
                self._stopped()
            self._prepare()
            self._standbys.check_memory(self._monotonic())
        return self._exit_code

    def _stopped(self) -> None:
        """No rank is left here."""
        if self._next and self._exit_code is None:
            self._start(self._next)
        else:
            self._timing.idle(self._monotonic())

    def _prepare(self) -> None:
        if self._exit_code is not None:
            self._timing.never()
            self._standbys.pause()
        elif self._timing.claim_due(self._monotonic()):
            self._generation.prepare(self._options.processes_per_node)

    def _notice_loss(self) -> None:
        if self._link.connected:
            self._agent_by = None
        elif self._agent_by is not None and self._monotonic() >= self._agent_by:
            waited_s = self._options.agent_wait_s
            words = nobody_answers(self._options.socket, self._link.refusal, waited_s)
            self._end(_EXIT_TEMPORARY, [words])
        if not self._joined and self._link.unanswered >= _UNANSWERED_MAX:
            self._end(1, [not_understood(self._options.socket)])
        if self._joined and not self._alone and not self._link.connected:
            self._alone = True
            self._terminal.say("this node's agent is away; the ranks go on, it is looked for")

    def _awaits_storage(self) -> bool:
        """Return whether a user who leaves still waits for the newest step to be stored."""
        return self._link.connected and self._leaving.left_s() > 0

    def _wait_s(self) -> float | None:
        waits = [self._generation.steps.due_in_s(), self._generation.output.due_in_s()]
        waits += [self._looks.due_in_s(), self._evidence.due_in_s()]
        waits.append(self._generation.watch.due_in_s())
        if self._exit_code is None:
            waits += [self._link.due_in_s(), self._words.due_in_s()]
            waits.append(self._leaving.due_in_s(stopped=self._generation.stopped))
        waits.append(self._timing.due_in_s(self._monotonic()))
        waits.append(self._standbys.due_in_s(self._monotonic()))
        if self._exit_code is not None and self._generation.stopped:
            waits.append(self._leaving.left_s())
        if (due := self._generation.due_in_s()) is not None:
            waits.append(min(due, _STOPPING_POLL_S))
        return min((wait for wait in waits if wait is not None), default=None)

    def _join(self) -> Join:
        return join_message(self._options, self._token, self._generation, self._link.job_id)

    def _heard(self, message: object) -> None:
        if isinstance(message, Joined):
            self._on_joined(message.node)
            return
        self._words.heard(refused=isinstance(message, Refused | RefusedForNow))
        if isinstance(message, Refused | RefusedForNow):
            status = 1 if isinstance(message, Refused) else _EXIT_TEMPORARY
            self._end(status, [f"refused: {message.reason}"])
        else:
            self._received(message)

    def _received(self, message: object) -> None:
        match message:
            case Start():
                self._on_start(message)
            case Stop():
                self._on_stop(message)
            case End():
                self._on_end(message)
            case Settled(generation):
                self._on_settled(generation)
            case Inspect():
                self._inspect(message)
            case Preload():
                self._standbys.receive_preload(message)
            case Notice():
                self._on_notice(message)

    def _on_notice(self, notice: Notice) -> None:
        if isinstance(notice, Hold):
            self._spare = notice.spare
        say = self._words.waits if self._generation.stopped else self._terminal.say
        say(notice.text)

    def _inspect(self, asked: Inspect) -> None:
        def tell(answers: Sequence[Answer]) -> None:
            self._tell_inspected(asked.look, answers)

        if isinstance(asked, InspectEnd):
            self._evidence.answer(asked.generation, tell)
        elif isinstance(asked, InspectRecent):
            self._looks.ask_recent(tell)
        else:
            self._looks.ask(tell, patient=isinstance(asked, InspectPatiently))

    def _rank_ended(self, end: RankEnd) -> None:
        failure = self._generation.rank_ended(end)
        if failure is not None:
            self._evidence.rank_ended(failure)

    def _tell_inspected(self, look: int, answers: Sequence[Answer]) -> None:
        for part in inspected(look, answers):
            self._link.send(part)

    def _on_joined(self, node: str) -> None:
        self._link.settled()
        again = "connected again" if self._joined else f"job {self._options.job}: joined"
        self._words.joined(f"{again} on {node}")
        self._joined, self._alone = True, False
        if self._generation.stopped:
            self._timing.idle(self._monotonic())
        self._generation.tell_again()
        self._standbys.report_again()

    def _on_settled(self, generation: int) -> None:
        if generation == self._generation.number:
            self._timing.settled(self._monotonic())
            self._evidence.settled(generation)

    def _on_start(self, start: Start) -> None:
        if start.generation <= self._generation.number or self._exit_code is not None:
            return
        if start.renew:
            self._standbys.renew()
        if self._generation.stopped:
            self._start(start)
        else:
            self._next = start
            self._evidence.then(lambda: self._generation.stop(0.0))

    def _start(self, start: Start) -> None:
        self._next, self._spare = None, False
        self._words.end_wait()
        self._terminal.say(
            f"{start.reason}; {start.processes} of {start.world_size} ranks run here"
        )
        self._standbys.pause()
        if self._files:
            self._files.prune()
        ranks = range(start.first_rank, start.first_rank + start.processes)
        self._evidence.begin(start.generation, ranks, start.world_size)
        self._generation.start(start)
        if self._files:
            running = self._workers.running()
            self._files.list_ranks(self._options.job, start.world_size, running)
        self._timing.started(self._monotonic())

    def _on_stop(self, stop: Stop) -> None:
        if stop.generation < self._generation.number:
            return  # an order to a generation that has been stopped already
        if self._generation.stopped:
            self._generation.tell_stopped()
        else:
            self._terminal.say(f"generation {self._generation.number} stops: {stop.reason}")
            # A rank that loses the connection to one that gives up may end first, and be reported.
            if isinstance(stop, StopAfterLook) or self._workers.is_giving_up():
                self._evidence.begin_look(decided=True)
            how = self._how_to_stop(stop.grace_s)
            self._evidence.then(lambda: self._generation.stop(*how))

    def _how_to_stop(self, grace_s: float) -> tuple[float, signal.Signals]:
        """Return how long ranks have to end, and their signal: at a user's word, the user's."""
        if self._leaving.asked is None:
            return grace_s, signal.SIGTERM
        return max(grace_s, self._leaving.ranks_s()), self._leaving.for_ranks(self._leaving.asked)

    def _on_end(self, end: End) -> None:
        if self._options.agent_log:
            end = replace(end, reason=without_memory(end.reason))
        told = last_words(self._options.job, end, self._generation.failure)
        self._leaving.heard_end(told[-1])
        self._end(self._leaving.exit_code(succeeded=end.succeeded), told)

    def _end(self, code: int, words: list[str], number: signal.Signals = signal.SIGTERM) -> None:
        if self._exit_code is None:
            self._exit_code, self._last_words = code, words
        self._generation.stop(self._leaving.ranks_s(), number)

    def _signalled(self, number: signal.Signals) -> None:
        if number == signal.SIGCHLD:
            self._workers.reap_strays()
        elif number == signal.SIGHUP and self._terminal.hung_up():
            self._terminal.say("the terminal is gone; the job goes on, and SIGTERM ends it")
        elif number in PASSED_ON and number not in self._options.ends_on:
            self._terminal.say(pass_on(number, self._workers.running()))
        elif not self._leaving.begin(number):
            self._end_by(number)

    def _end_by(self, number: signal.Signals) -> None:
        """End the job by a signal: after its last step is saved, or at once when asked twice."""
        if self._exit_code is not None:
            self._leaving.wait_no_longer()
            self._generation.stop(0.0)
        elif self._leaving.asked is not None:
            self._leave(number, again=True)
            self._generation.stop(0.0)
        elif self._generation.stopped or not self._leaving.ask(number):
            self._leave(number)
        else:
            self._generation.hold()

    def _leave(self, number: signal.Signals, *, again: bool = False) -> None:
        """Leave the job, whatever becomes of its last step."""
        spare = self._spare and self._generation.stopped
        begun = self._generation.number > 0
        self._leaving.by(number, begun=begun, again=again, spare=spare)
        self._end(128 + number, [], self._leaving.for_ranks(number))
        if self._leaving.only_here(number):
            self._generation.stop(0.0)
