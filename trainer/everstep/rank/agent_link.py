"""Agent connection of a training process: no step waits for an agent that stands still.

All waits for an answer are in `AgentLink`, and all their bounds are here and in the deadlines of
who asks. A lost agent is ``None`` from `ask` to the training loop; the link attaches again.
"""

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from everstep.rank.environment import Membership
from everstep.rank.sdk_log import RateLimitedLogger
from everstep_common.clock import Clock, boot_ns
from everstep_common.frames import Channel
from everstep_common.rank_messages import (
    CARRIERS_TO_TRAINER,
    TO_TRAINER,
    Attach,
    Attached,
    Await,
    Entry,
    Pending,
    Progress,
    Ready,
    Refused,
)
from everstep_common.version import TRAINER_PROTOCOL, VERSION

logger = logging.getLogger("everstep")

# The longest that a step waits for a sign of life: an agent that works on a question sends one
# three times a second (decision 039). After it, nothing waits before the agent has answered.
SILENCE_S = 1.0
# An agent reads and checks the manifest of a commit at 10 MB/s and more.
_READ_BYTES_PER_S = 4e6
# An agent answers an Attach within a millisecond; after a loss no step waits longer than this.
_QUICK_ATTACH_S = 0.25
# After an attempt that took t seconds, none follows for 40 t: at most 2.5 % of the time is lost.
_PAUSE_PER_ATTEMPT = 40.0
_PAUSE_MIN_S = 0.05
# The steps that an agent which does not read is told when it does: as many as it combines at once.
_UNSENT_MAX = 10_000
_LOST = "the agent is lost (%s); training goes on without snapshots"
_SILENT = (
    "the agent does not answer (see %s); training goes on, and steps are saved again when it does"
)
_STATUS = "'systemctl status everstep-agent' on this node"
_WORKS = (
    "the agent still works on what it was asked before; training goes on, and steps are saved again"
    " when that is done"
)


class RefusedError(RuntimeError):
    """The agent does not take this process: a wrong token, another user, an older generation."""


@dataclass(frozen=True, slots=True)
class _Question:
    """Question that is not answered yet; ``on_late`` hears an answer that nobody waits for."""

    expected: tuple[type, ...]
    on_late: Callable[[object], None]
    # How long an agent that gives signs of life is waited for, once somebody waits.
    timeout_s: float = 0.0


class AgentLink:
    """Connection of one rank to its node's agent. Not for use by forked children.

    One thread at a time has its turn: it asks, attaches and closes. During the turn of a snapshot
    or a reservation in the background the training thread can still say what is not answered.

    At most one question is open. One that is not answered in time stays so, and no other is asked
    before its answer has come: so none is ever taken for the answer to another question.
    """

    def __init__(self, member: Membership, clock: Clock = time) -> None:
        self._member = member
        self._clock = clock
        self._channel: Channel | None = None
        self._welcome = False
        self._question: _Question | None = None
        self._silent = False
        # When it last said that it works on the open question.
        self._works_s = -SILENCE_S
        self._patient_until_s = 0.0
        # Whether this is the process that attached, not a child that it forked.
        self.usable = True
        self._not_before_s = 0.0
        self._ready = False
        self._unsent: deque[Progress] = deque(maxlen=_UNSENT_MAX)
        self._log = RateLimitedLogger(logger)
        self._new_locks()
        self.reservations = 0  # how often slots were given; only the newest are the agent's
        self.session = 0  # grows with every Attached; what came from an older one is void
        # What the last copy was made of that this session committed: the agent knows it, too.
        self.committed: tuple[Entry, ...] = ()
        self.node = ""
        self.restore_step: int | None = None
        _close_in_children(self)

    @property
    def starts_fresh(self) -> bool:
        """Whether this generation begins with nothing to restore."""
        return self._member.starts_fresh

    @property
    def nothing_to_restore(self) -> bool:
        """Whether the agent has said that this generation begins from the beginning."""
        return self.starts_fresh and self.attached and self.restore_step is None

    @property
    def attached(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return self._channel is not None and self._welcome and not self._hung_up

    @property
    def member(self) -> Membership:
        """The place of this process in its job."""
        return self._member

    @property
    def answers(self) -> bool:
        """Whether the agent is there and does not stand still, as far as is known."""
        return self.attached and not self._silent

    @property
    def asks(self) -> bool:
        """Whether a question is open."""
        return self._question is not None

    @property
    def trouble(self) -> str:
        """Why there was no answer."""
        if not self._silent:
            return "the agent is away"
        if self._clock.monotonic() - self._works_s < SILENCE_S:
            return _WORKS
        return _SILENT % (self._member.agent_log or _STATUS)

    def attach(self, deadline_s: float) -> bool:
        """Attach, with retries until the deadline (seconds from now). Raises RefusedError."""
        end_s = self._clock.monotonic() + deadline_s
        while not self._attach_once(max(0.0, end_s - self._clock.monotonic())):
            if self._clock.monotonic() >= end_s:
                return False
            self._clock.sleep(_PAUSE_MIN_S)
        return True

    def attach_quickly(self) -> bool:
        """Return whether the connection stands, after one short attempt if one is due."""
        if self.attached:
            return True
        if not self.usable or not self._turn.acquire(blocking=False):
            return False
        try:
            return self.attached or self._attach_if_due()
        finally:
            self._turn.release()

    def _attach_if_due(self) -> bool:
        started_s, patience_s = self._clock.monotonic(), self._patience_s(0.0)
        under_way = self._channel is not None and not self._hung_up
        if not under_way and not patience_s and started_s < self._not_before_s:
            return False
        try:
            if patience_s and self.attach(patience_s):
                return True
            if not patience_s and self._attach_once(0.0 if self._silent else _QUICK_ATTACH_S):
                return True
        except RefusedError as error:
            self._log.warn("the agent refused to attach again: %s", error)
        now_s = self._clock.monotonic()
        pause_s = max(_PAUSE_MIN_S, _PAUSE_PER_ATTEMPT * (now_s - started_s))
        self._not_before_s = now_s + pause_s
        return False

    def ask(
        self,
        message: object,
        expected: tuple[type, ...],
        timeout_s: float,
        *,
        silence_s: float = SILENCE_S,
        on_late: Callable[[object], None] = lambda _: None,
    ) -> tuple[object | None, list[int]]:
        """Send, and return the answer and its descriptors (the caller's); None: there is none.

        The answer is one of the ``expected`` types or Refused. An agent that gives no sign of life
        for ``silence_s`` seconds is not waited for; what it says later is ``on_late``'s.
        """
        if not self.usable:
            return None, []
        with self._turn:
            if not self.attached or not self._close_question(silence_s):
                return None, []
            return self._put(message, _Question(expected, on_late), timeout_s, silence_s)

    def post(
        self,
        message: object,
        expected: tuple[type, ...],
        timeout_s: float,
        on_answer: Callable[[object], None],
    ) -> bool:
        """Send without waiting for the answer; return whether it was sent.

        The answer is taken off before the next question, or by `hear_answer`: only these wait.
        """
        if not self.usable:
            return False
        with self._turn:
            if not self.attached or not self._close_question(SILENCE_S):
                return False
            question = _Question(expected, on_answer, timeout_s)
            return self._send_question(message, question, SILENCE_S) > 0

    def hear_answer(self) -> bool:
        """Return whether no question is open, after a wait for the answer to what was posted."""
        if not self.usable:
            return False
        with self._turn:
            return self.attached and self._close_question(SILENCE_S)

    def be_patient(self, for_s: float) -> None:
        """Wait for an agent that stands still after all, for so long: training is at its end."""
        self._patient_until_s = self._clock.monotonic() + for_s

    def send_message(self, message: object) -> bool:
        """Send what is not answered; return whether it was sent. Any thread; never waits long."""
        channel = self._channel
        if not self.usable or channel is None or self._hung_up:
            return False
        if not self._sending.acquire(timeout=_QUICK_ATTACH_S):
            return False
        try:
            channel.send_to_reader(message, 0.0)
        except TimeoutError:
            return False
        except OSError as error:
            self._hang_up(channel, error)
            return False
        finally:
            self._sending.release()
        return True

    def tell_progress(self, progress: Progress) -> None:
        """Report a step; an agent that does not read gets it when it does. Never waits."""
        self._unsent.append(progress)
        channel = self._channel
        if channel is None or not self.attached or not self._sending.acquire(blocking=False):
            return
        try:
            self._send_progress(channel)
        except OSError as error:
            self._hang_up(channel, error)
        finally:
            self._sending.release()

    def ready(self) -> None:
        """Tell the agent, once per attachment, that this process begins to train."""
        if not self._ready:
            self._ready = True
            self.send_message(Ready(boot_ns()))

    def drop(self) -> None:
        """Close the connection, without a word; only in one's turn."""
        channel, self._channel = self._channel, None
        self._question, self._welcome, self._silent = None, False, False
        if channel is not None:
            with self._sending:  # another thread may be sending on it
                channel.close()

    def forget(self) -> None:
        """Close a forked child's copy; a thread that only its parent has may hold the locks."""
        self.usable = False
        self._new_locks()
        self.drop()

    def __del__(self) -> None:
        """A training script need not close anything."""
        self.drop()

    def _attach_once(self, timeout_s: float) -> bool:
        """Attach, or go on to wait for the answer to the last attempt. Raises RefusedError."""
        with self._turn:
            if self._hung_up or self.attached:
                self.drop()
            if self._channel is not None:
                answer, _ = self._listen(timeout_s, timeout_s)
            elif self._connect(timeout_s):
                question = _Question((Attached,), lambda _: None)
                answer, _ = self._put(self._attach_message(), question, timeout_s, timeout_s)
            else:
                return False
            if isinstance(answer, Refused):
                self.drop()
                raise RefusedError(answer.reason)
            if isinstance(answer, Attached):
                self._attached(answer)
            return self.attached

    def _connect(self, timeout_s: float) -> bool:
        try:
            self._channel = Channel.connect(
                self._member.socket, TO_TRAINER, timeout_s, CARRIERS_TO_TRAINER
            )
        except OSError:
            return False
        self._hung_up = False
        return True

    def _attach_message(self) -> Attach:
        member = self._member
        return Attach(
            protocol=TRAINER_PROTOCOL,
            version=VERSION,
            job=member.job,
            token=member.token,
            generation=member.generation,
            rank=member.rank,
        )

    def _attached(self, answer: Attached) -> None:
        self._welcome = True
        self.session += 1
        self.committed = ()
        self.node = answer.node
        self.restore_step = answer.restore_step
        if self.session > 1:
            self._log.warn("attached to the agent again")
        if self._ready:  # an agent that restarted may not know
            self.send_message(Ready(boot_ns()))

    def _put(
        self, message: object, question: _Question, timeout_s: float, silence_s: float
    ) -> tuple[object | None, list[int]]:
        sent_bytes = self._send_question(message, question, silence_s)
        if not sent_bytes:
            return None, []
        return self._listen(timeout_s, silence_s + sent_bytes / _READ_BYTES_PER_S)

    def _send_question(self, message: object, question: _Question, silence_s: float) -> int:
        """Send a question, which is open then; return its bytes, 0 where it was not sent."""
        channel = self._channel
        assert channel is not None
        room_s = self._patience_s(silence_s) if self._silent else silence_s
        try:
            with self._sending:
                if self._welcome:
                    self._send_progress(channel)
                sent_bytes = channel.send_to_reader(message, room_s)
            self._question = question
        except TimeoutError:  # it does not read
            self._silent = True
            return 0
        except OSError as error:
            self._lose(error)
            return 0
        except BaseException:
            self.drop()
            raise
        return sent_bytes

    def _close_question(self, silence_s: float) -> bool:
        """Return whether no question is open, after a wait for its answer.

        Where the agent is known to stand still, only a patient one waits.
        """
        question = self._question
        if question is None:
            return True
        patience_s = self._patience_s(silence_s)
        if self._silent:
            answer, fds = self._listen(patience_s, patience_s)
        else:
            answer, fds = self._listen(max(patience_s, question.timeout_s), silence_s)
        for fd in fds:
            os.close(fd)
        if answer is not None:
            question.on_late(answer)
        return answer is not None and self.attached

    def _listen(self, timeout_s: float, silence_s: float) -> tuple[object | None, list[int]]:
        """Return the answer to the open question; None: it did not come, and the question stays."""
        try:
            answer, fds = self._receive(timeout_s, silence_s)
        except TimeoutError:
            self._silent = True
            return None, []
        except OSError as error:
            self._lose(error)
            return None, []
        except BaseException:  # Ctrl-C: its answer must not be taken for the next one's
            self.drop()
            raise
        question, self._question, self._silent = self._question, None, False
        if question is not None and isinstance(answer, (*question.expected, Refused)):
            return answer, fds
        for fd in fds:
            os.close(fd)
        self._lose(ConnectionError(f"an unexpected {type(answer).__name__}"))
        return None, []

    def _receive(self, timeout_s: float, silence_s: float) -> tuple[object, list[int]]:
        channel = self._channel
        assert channel is not None
        end_s = self._clock.monotonic() + timeout_s
        while True:
            left_s = end_s - self._clock.monotonic()
            try:
                answer, fds = channel.receive(max(0.0, min(left_s, silence_s)))
            except TimeoutError:
                if not self._waits_on(end_s):
                    raise
                continue
            if not isinstance(answer, Pending):
                return answer, fds
            self._works_s = self._clock.monotonic()
            self._await(channel)

    def _await(self, channel: Channel) -> None:
        """Have the answer sent, of which the agent has said that it takes longer."""
        try:
            with self._sending:
                channel.send_to_reader(Await(), SILENCE_S)
        except TimeoutError as error:  # without it the question would stay open for ever
            raise ConnectionError("the agent stopped reading") from error

    def _patience_s(self, silence_s: float) -> float:
        """Return for how long an agent that is known to stand still is waited for."""
        left_s = self._patient_until_s - self._clock.monotonic()
        return max(0.0, left_s, silence_s if silence_s > SILENCE_S else 0.0)

    def _waits_on(self, end_s: float) -> bool:
        """Return whether to wait on after a silence, for the last step; say so once."""
        left_s = min(end_s, self._patient_until_s) - self._clock.monotonic()
        if left_s > 0 and not self._silent:
            self._silent = True
            self._log.warn("the agent does not answer; up to %.0f s are left for it", left_s)
        return left_s > 0

    def _send_progress(self, channel: Channel) -> None:
        """Send what the agent has room for; a message is lost only with the connection."""
        while self._unsent:
            try:
                channel.send_to_reader(self._unsent[0], 0.0)
            except TimeoutError:
                return
            self._unsent.popleft()

    def _lose(self, error: OSError) -> None:
        if self.attached:
            self._log.warn(_LOST, error)
        self.drop()

    def _hang_up(self, channel: Channel, error: Exception) -> None:
        """End a connection that another thread may be reading: whose turn it is closes it.

        A descriptor that is closed under a reader may be somebody else's file the next moment.
        """
        if channel is self._channel and not self._hung_up:
            self._log.warn(_LOST, error)
            self._hung_up = True
            channel.hang_up()

    def _new_locks(self) -> None:
        self._turn = threading.RLock()
        self._sending = threading.Lock()
        self._hung_up = False


def _close_in_children(link: AgentLink) -> None:
    """A forked data-loader worker must not hold the connection open after its parent's death."""
    reference = weakref.ref(link)

    def close() -> None:
        if (inherited := reference()) is not None:
            inherited.forget()

    os.register_at_fork(after_in_child=close)
