"""Agent listener under torchrun: a thread that hears the agent's orders and sees ranks end."""

import contextlib
import selectors
import sys
import threading
import time

from everstep.integrations.torchrun.exchange import JobOverError, RendezvousExchange
from everstep.integrations.torchrun.generation import WatchedGeneration
from everstep.integrations.torchrun.process_restart import Again, Kept
from everstep.integrations.torchrun.settings import TorchrunSettings
from everstep.integrations.torchrun.workers import TorchrunWorkers, exit_code
from everstep.launch.agent_wait import nobody_answers, waits_for_agent, why_expected
from everstep.launch.free_port import FreePort
from everstep.launch.link import LaunchLink
from everstep.launch.processes.rank_failure import RankEnd
from everstep.launch.selector_loop import call_ready
from everstep.launch.wait_messages import WaitMessages
from everstep_common.launcher_messages import End, Join, Joined, Notice, Start, Stop
from everstep_common.rank_messages import Refused, RefusedForNow
from everstep_common.reports import LauncherLeft
from everstep_common.version import TRAINER_PROTOCOL, VERSION

# An interpreter takes longer to start than this, so no rank ends before it was seen.
_LOOK_S = 0.01


class AgentListener:
    """Mediator between the agent and torchrun's thread."""

    def __init__(
        self,
        settings: TorchrunSettings,
        exchange: RendezvousExchange,
        again: Again | None = None,
        port: FreePort | None = None,
    ) -> None:
        """``again`` restarts torchrun from scratch (None: it cannot), ``port`` is held already."""
        self._settings = settings
        self._again = again
        self._exchange = exchange
        self._selector = selectors.DefaultSelector()
        self._selector.register(exchange.wakened, selectors.EVENT_READ, self._drain)
        self._link = LaunchLink(settings.socket, self._selector, self._received, time.monotonic)
        self._workers = TorchrunWorkers(self._selector, self._rank_ended, exit_code)
        self._generation = WatchedGeneration(self._workers, self._link.send, port)
        self._words = WaitMessages(say, time.monotonic)
        self._next: Start | None = None
        self._stop: Stop | None = None
        self._grace_runs = False
        self._kill_at: float | None = None

    def join(self) -> None:
        """Connect to the agent, and listen from then on. Raises JobOverError where none answers."""
        self._link.retry(self._join())
        if not self._link.connected:
            self._await_agent()
        threading.Thread(target=self._listen, name="everstep", daemon=True).start()

    def _await_agent(self) -> None:
        """Wait for an agent where one is to be expected. Raises JobOverError without one."""
        socket, wait_s = self._settings.socket, self._settings.agent_wait_s
        why = why_expected(socket, self._link.refusal) if wait_s else ""
        wait_s = wait_s if why else 0.0
        give_up_at = time.monotonic() + wait_s
        if why:
            say(waits_for_agent(socket, why, wait_s, option="--rdzv-conf agent_wait=0"))
        while not self._link.connected and time.monotonic() < give_up_at:
            time.sleep(self._link.due_in_s() or 0.0)
            self._link.retry(self._join())
        if not self._link.connected:
            told = nobody_answers(socket, self._link.refusal, wait_s, under_torchrun=True)
            raise JobOverError(told, succeeded=False) from self._link.refusal

    def listen_for_store(self) -> int:
        """Return the socket that the plan has promised to this generation's nodes."""
        return self._generation.port.listen()

    def _listen(self) -> None:
        exchange = self._exchange
        try:
            while not exchange.answered.left:
                call_ready(self._selector, self._wait_s())
                self._link.retry(self._join())
                self._words.say_due()
                if not self._generation.stopped:
                    self._generation.report_started()
                with exchange.changed:
                    self._advance()
                    exchange.changed.notify_all()
        finally:
            with exchange.changed:
                exchange.answered.deaf = True
                exchange.changed.notify_all()
            self._workers.close()
            self._link.drop()

    def _wait_s(self) -> float | None:
        waits = [self._link.due_in_s(), self._words.due_in_s()]
        if self._generation.awaits_workers:
            waits.append(_LOOK_S)
        if self._kill_at is not None:
            waits.append(max(0.0, self._kill_at - time.monotonic()))
        return min((wait for wait in waits if wait is not None), default=None)

    def _advance(self) -> None:
        """Do what the agent and torchrun's thread want from each other."""
        asked, generation = self._exchange.asked, self._generation
        if asked.idle and not generation.stopped:
            generation.gone(told=asked.ends_ranks, succeeded=asked.succeeded)
            self._grace_runs, self._kill_at = False, None
        if asked.leaving:
            self._link.send(LauncherLeft(asked.leaving, by_user=True))
            generation.tell_stopped()
            self._exchange.answered.left = True
            return
        if self._done and (self._stop is not None or self._next is not None):
            generation.gone(told=True, succeeded=True)
        if self._stop is not None:
            self._obey(self._stop)
        if self._done and self._next is not None:
            self._begin_anew(self._next)
        if generation.stopped and self._next is not None and asked.idle and not asked.succeeded:
            self._begin(self._next)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._workers.kill()

    def _obey(self, stop: Stop) -> None:
        if self._generation.stopped:
            self._stop = None
            self._generation.tell_stopped()
        # A rank that is killed before torchrun is ready to end it costs one of torchrun's restarts.
        elif not self._grace_runs and (self._exchange.asked.ends_ranks or self._generation.failed):
            self._grace_runs, self._kill_at = True, time.monotonic() + stop.grace_s

    def _begin(self, start: Start) -> None:
        self._next = None
        self._words.end_wait()
        self._generation.begin(start)
        asked, answered = self._exchange.asked, self._exchange.answered
        asked.idle = asked.ends_ranks = answered.restart = False
        answered.start = start

    @property
    def _done(self) -> bool:
        """Whether all ranks here have ended well, so that only a new torchrun starts others."""
        return self._again is not None and self._generation.finished

    def _begin_anew(self, start: Start) -> None:
        if self._again is None:
            return
        self._next = None
        say(f"its ranks had ended well: torchrun starts again for generation {start.generation}")
        try:
            self._again.begin(Kept(self._link.descriptor, self._generation.port.descriptor))
        except OSError as error:
            sentence = f"torchrun cannot start itself again: {error}; start it on this node"
            self._end(JobOverError(sentence, succeeded=False))

    def _join(self) -> Join:
        given, generation = self._settings, self._generation
        return Join(
            protocol=TRAINER_PROTOCOL,
            version=VERSION,
            job=given.job,
            token=given.token,
            nodes_min=given.nodes_min,
            nodes_max=given.nodes_max,
            processes_per_node=given.processes,
            reform=given.reform,
            restarts_max=given.restarts_max,
            free_port=generation.port.number,
            running_generation=0 if generation.stopped else generation.number,
            storage=given.keep.storage,
            environment=given.keep.environment,
            snapshot_bytes=given.keep.memory_bytes,
            snapshot_every_min=given.keep.every_min,
            snapshot_every_max=given.keep.every_max,
            fresh=given.keep.fresh and not generation.number,
            continues=given.keep.continues and not generation.number,
            storage_begun=given.keep.begun,
            job_id=self._link.job_id,
            queue=given.queue,
            account=given.account,
        )

    def _received(self, message: object) -> None:
        if not isinstance(message, Joined):
            self._words.heard(refused=isinstance(message, Refused | RefusedForNow))
        match message:
            case Joined(node):
                self._link.settled()
                self._words.joined(f"job {self._settings.job}: joined on {node}")
                self._generation.tell_again()
            case Notice(text):
                if self._generation.stopped:
                    self._words.waits(text)
                else:
                    say(text)
            case Refused(reason) | RefusedForNow(reason):
                self._end(JobOverError(f"refused: {reason}", succeeded=False))
            case End(succeeded, reason):
                how = "succeeded" if succeeded else "failed"
                sentence = f"job {self._settings.job} {how}: {reason}"
                self._end(JobOverError(sentence, succeeded=succeeded))
            case Start() | Stop():
                self._ordered(message)

    def _ordered(self, order: Start | Stop) -> None:
        number = self._generation.number
        if isinstance(order, Stop) and order.generation >= number:
            self._stop = order
        elif isinstance(order, Start) and order.generation > number:
            say(order.reason)
            self._next = order
        else:
            return
        exchange = self._exchange
        if self._done:
            return  # torchrun waits for the end of the job, and need not hear of it
        with exchange.changed:
            running = not self._generation.stopped
            exchange.answered.restart = running or exchange.asked.succeeded

    def _end(self, over: JobOverError) -> None:
        answered = self._exchange.answered
        with self._exchange.changed:
            answered.over = answered.over or over
            answered.restart = not over.succeeded

    def _rank_ended(self, end: RankEnd) -> None:
        with self._exchange.changed:
            told = self._exchange.asked.ends_ranks
        if not told:
            self._generation.rank_ended(end)

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            self._exchange.wakened.recv(4096)


def say(sentence: str) -> None:
    """Tell the user."""
    print(f"everstep: {sentence}", file=sys.stderr, flush=True)
