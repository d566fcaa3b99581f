"""Agent connection of a training process: every wait has a deadline, a loss never raises.

A lost agent is ``None`` from `ask` to the training loop; the link attaches again by itself.
"""

import logging
import os
import select
import threading
import time
import weakref

from everstep.rank.clock import Clock
from everstep.rank.environment import Membership
from everstep.rank.log_rate_limit import RateLimitedLogger
from everstep_common.clock import boot_ns
from everstep_common.frames import Channel
from everstep_common.trainer_messages import (
    CARRIERS_TO_TRAINER,
    TO_TRAINER,
    Attach,
    Attached,
    Entry,
    Ready,
    Refused,
)
from everstep_common.version import TRAINER_PROTOCOL, VERSION

logger = logging.getLogger("everstep")

# An agent answers an Attach within a millisecond; a training loop waits no longer than this.
QUICK_ATTACH_S = 0.25
# After an attempt that took t seconds, none follows for 40 t: at most 2.5 % of the time is lost.
PAUSE_PER_ATTEMPT = 40.0
PAUSE_MIN_S = 0.05
_LOST = "the agent is lost (%s); training goes on without snapshots"


class RefusedError(RuntimeError):
    """The agent does not take this process: a wrong token, another user, an older generation."""


class AgentLink:
    """Connection of one rank to its node's agent. Not for use by forked children.

    One thread at a time has its turn: it asks, attaches and closes. During the turn of a snapshot
    or a reservation in the background the training thread can still `tell`, and nothing else.
    """

    def __init__(self, member: Membership, clock: Clock = time) -> None:
        self._member = member
        self._clock = clock
        self._channel: Channel | None = None
        self._pid = os.getpid()
        self._not_before_s = 0.0
        self._ready = False
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
    def usable(self) -> bool:
        """Whether this is the process that attached, not a child that it forked."""
        return os.getpid() == self._pid

    @property
    def starts_fresh(self) -> bool:
        """Whether this generation begins with nothing to restore."""
        return self._member.starts_fresh

    @property
    def attached(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return self._channel is not None and not self._hung_up

    def attach(self, deadline_s: float) -> bool:
        """Attach, with retries until the deadline (seconds from now). Raises RefusedError."""
        end = self._clock.monotonic() + deadline_s
        while not self._attach_once(min(5.0, deadline_s)):
            if self._clock.monotonic() >= end:
                return False
            self._clock.sleep(PAUSE_MIN_S)
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
        started = self._clock.monotonic()
        if started < self._not_before_s:
            return False
        try:
            attached = self._attach_once(QUICK_ATTACH_S)
        except RefusedError as error:
            self._log.warn("the agent refused to attach again: %s", error)
            attached = False
        now = self._clock.monotonic()
        self._not_before_s = now + max(PAUSE_MIN_S, PAUSE_PER_ATTEMPT * (now - started))
        return attached

    def ask(
        self, message: object, expected: tuple[type, ...], timeout_s: float
    ) -> tuple[object | None, list[int]]:
        """Send, and return the answer and its descriptors (the caller's); None: the agent is lost.

        The answer is one of the ``expected`` types or Refused.
        """
        if not self.usable:
            return None, []
        with self._turn:
            if self._channel is None:
                return None, []
            try:
                with self._sending:
                    self._channel.send(message)
                answer, fds = self._channel.receive(timeout_s)
            except OSError as error:
                self._lose(error)
                return None, []
            except BaseException:  # Ctrl-C: its answer must not be taken for the next one's
                self.drop()
                raise
            if isinstance(answer, (*expected, Refused)):
                return answer, fds
            for fd in fds:
                os.close(fd)
            self._lose(ConnectionError(f"an unexpected {type(answer).__name__}"))
            return None, []

    def send_message(self, message: object) -> bool:
        """Send what is not answered; return whether it could be sent. Any thread, at any time."""
        channel = self._channel
        if not self.usable or channel is None or self._hung_up:
            return False
        if not self._sending.acquire(timeout=QUICK_ATTACH_S):
            return False
        try:
            # A hung agent's socket fills up; training does not wait for room in it.
            room = select.poll()
            room.register(channel, select.POLLOUT)
            if not room.poll(QUICK_ATTACH_S * 1000):
                raise TimeoutError("the agent does not read")
            channel.send(message)
        except (OSError, ValueError) as error:  # ValueError: closed in somebody's turn just now
            self._hang_up(channel, error)
            return False
        finally:
            self._sending.release()
        return True

    def ready(self) -> None:
        """Tell the agent, once per attachment, that this process begins to train."""
        if not self._ready:
            self._ready = True
            self.send_message(Ready(boot_ns()))

    def drop(self) -> None:
        """Close the connection, without a word; only in one's turn."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def forget(self) -> None:
        """Close a forked child's copy; a thread that only its parent has may hold the locks."""
        self._new_locks()
        self.drop()

    def __del__(self) -> None:
        """A training script need not close anything."""
        self.drop()

    def _attach_once(self, timeout_s: float) -> bool:
        member = self._member
        hello = Attach(
            protocol=TRAINER_PROTOCOL,
            version=VERSION,
            job=member.job,
            token=member.token,
            generation=member.generation,
            rank=member.rank,
        )
        with self._turn:
            self.drop()
            try:
                self._channel = Channel.connect(
                    member.socket, TO_TRAINER, timeout_s, CARRIERS_TO_TRAINER
                )
            except OSError:
                return False
            self._hung_up = False
            return self._introduce(hello, timeout_s)

    def _introduce(self, hello: Attach, timeout_s: float) -> bool:
        answer, _ = self.ask(hello, (Attached,), timeout_s)
        if not isinstance(answer, Attached):
            self.drop()
            if isinstance(answer, Refused):
                raise RefusedError(answer.reason)
            return False
        self._attached(answer)
        return True

    def _attached(self, answer: Attached) -> None:
        self.session += 1
        self.committed = ()
        self.node = answer.node
        self.restore_step = answer.restore_step
        if self.session > 1:
            self._log.warn("attached to the agent again")
        if self._ready:  # an agent that restarted may not know
            self.send_message(Ready(boot_ns()))

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
