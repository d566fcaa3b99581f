"""Step-level snapshots: the state copied to the agent's memory, and back after a failure."""

import functools
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ParamSpec, Protocol, TypeVar, runtime_checkable

from everstep.copy_engine.device_copies import Device
from everstep.copy_engine.views import (
    Capture,
    Growing,
    RestoreError,
    ShardView,
    StateError,
    offsets,
)
from everstep.rank.agent_link import AgentLink
from everstep.rank.sdk_log import RateLimitedLogger
from everstep.saving.background import Background
from everstep.saving.exchange import Ending, Handover, Outcome, SaveExchange, failed
from everstep.saving.own_files import OwnFiles
from everstep.saving.policy import Deadlines, Policy
from everstep.saving.reservation import NO_MEMORY_YET, Reservation
from everstep.saving.restoring import Restorer
from everstep.saving.step_saving import Saving, Tools
from everstep.saving.steps import StepError, step_number
from everstep_common.clock import Clock, boot_ns

logger = logging.getLogger("everstep")


_TWICE_AT_ONCE = (
    "snapshot() was called while another call of it was under way, in another thread or a signal"
    " handler; call it from the training loop only"
)
_REPLACED = (
    "snapshots() was called again in this process, and a step has one state; name all of it in one"
    " mapping, or use the newest snapshots only"
)


_P = ParamSpec("_P")
_R = TypeVar("_R")


class SnapshotError(RuntimeError):
    """A step was not saved; raised only with ``raises=True``."""


def _without_inner_frames(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let an error about the state be one sentence at the script's own line."""

    @functools.wraps(call)
    def shown(*words: _P.args, **named: _P.kwargs) -> _R:
        try:
            return call(*words, **named)
        except (RestoreError, StateError) as error:
            raise error.with_traceback(None) from error.__cause__

    return shown


class _LateCommits:
    """Steps that counted as not saved, and whose commit the agent answered later."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        """Count one more."""
        self.count += 1


class Snapshots:
    """The snapshots of one rank's state. Use from the training thread."""

    def __init__(
        self,
        capture: Capture,
        link: AgentLink | None,
        tools: Tools,
        *,
        policy: Policy | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._capture = capture
        self._link = link
        self._tools = tools
        self._policy = policy or Policy()
        self._deadlines = deadlines or Deadlines()
        self._background = Background(link, self._deadlines.exit_s)
        self._reservation = Reservation()
        self._handover = Handover()
        self._late = _LateCommits()
        # Made once: a step has no time for what is the same for all.
        self._usual = None if link is None else self._new_exchange(link)
        self._own_files = None if link is None else OwnFiles(link)
        self._device = tools.device
        # A second step in the same slots, and between the words of the first, would be of neither.
        self._busy = threading.Lock()
        self._unplanned = Outcome(Ending.UNPLANNED)
        self._complaint = ""
        self._lines = RateLimitedLogger(logger)
        self._replaced = False
        self._saved_last = False
        self._stall_ns = 0
        self._failed_steps = 0
        self._reserves_ahead = False
        if self._usable and link is not None and link.nothing_to_restore:
            # New memory takes seconds: it comes while the script goes on to its first step.
            self._reserve_early(link)

    @property
    def unsaved_steps(self) -> int:
        """How many steps could not be saved."""
        return self._failed_steps - self._late.count

    @_without_inner_frames
    def restore(self, clock: Clock = time) -> int | None:
        """Fill the state from the recovery plan's step and return it; None: start at the beginning.

        Raises RestoreError when there is a state to restore and it cannot be had, StateError when
        a part of the state cannot take part in snapshots at all.
        """
        self.join()
        self._capture.views()
        link = self._link
        if link is None or not link.usable:
            return None
        step = None if link.nothing_to_restore else self._restore(link, clock)
        link.ready()
        if not self._reserves_ahead:
            self._reserve_ahead(link, restored=step is not None)
        return step

    def snapshot(self, step: int, *, last: bool = False) -> bool:
        """Save the state after ``step``; return whether it was saved, or is being saved.

        With ``overlap`` the state must stay as it is until `settle` or `join`; optimizers that are
        part of it see to that themselves. ``last``: no step follows, so an agent that stands still
        is waited for. Raises nothing without ``raises``.
        """
        link = self._link
        if link is None or not link.usable:
            return False
        if not self._busy.acquire(blocking=False):
            return self._judge(failed(_TWICE_AT_ONCE))
        started_ns = boot_ns()
        try:
            self._take_outcome()
            if last:
                link.be_patient(self._deadlines.exit_s)
            return self._snapshot(link, step, last=last)
        finally:
            self._stall_ns += boot_ns() - started_ns
            self._busy.release()

    def settle(self) -> None:
        """Return when the state may change: it is copied, or its device waits for the copy."""
        saving = self._background.saving
        if saving is not None and self._usable:
            started_ns = boot_ns()
            saving.settle()
            self._stall_ns += boot_ns() - started_ns

    def join(self) -> bool:
        """Return when no snapshot is under way; whether the last one was saved."""
        if not self._usable:
            return False
        started_ns = boot_ns()
        try:
            self._take_outcome()
        finally:
            self._stall_ns += boot_ns() - started_ns
        return self._saved_last

    def replace(self) -> None:
        """Save no further step: a process has one state, and another object has it now."""
        self._replaced = True
        if self._usable:
            self._background.finish()
            self._reservation.wait()

    def take_stall_ns(self) -> int:
        """Return how long training stood still for snapshots since the last call."""
        stall_ns, self._stall_ns = self._stall_ns, 0
        return stall_ns

    @property
    def _usable(self) -> bool:
        return self._link is not None and self._link.usable

    def _restore(self, link: AgentLink, clock: Clock) -> int | None:
        limits = self._deadlines
        patience_s = limits.fresh_s if link.starts_fresh else limits.restore_s
        restorer = Restorer(link, self._tools.copier, clock, patience_s, link.starts_fresh)
        return restorer.restore(self._capture)

    def _reserve_ahead(self, link: AgentLink, *, restored: bool) -> None:
        """Have the slots made while the first step computes: no recovery waits for memory."""
        shards = self._capture.views()
        _, size_bytes = offsets(shards)
        if isinstance(self._capture, Growing):
            # What is there before the first step is not all of it.
            ahead = self._capture.bytes_ahead()
            if ahead is None and not restored:
                return
            size_bytes = max(size_bytes, ahead or 0)
        self._new_exchange(link).reserve_ahead(size_bytes, self._device_for(shards))
        self._reserves_ahead = True

    def _reserve_early(self, link: AgentLink) -> None:
        """As `_reserve_ahead`, and raises nothing: a constructor that fails would end training."""
        try:
            self._reserve_ahead(link, restored=False)
        except StateError:
            pass  # `restore`, or the first snapshot, says what is wrong with the state
        except Exception as error:  # noqa: BLE001 - the state's own code may raise anything
            logger.warning(NO_MEMORY_YET, f"{type(error).__name__}: {error}")

    def _new_exchange(self, link: AgentLink) -> SaveExchange:
        policy = self._policy
        return SaveExchange(
            link,
            self._reservation,
            policy,
            self._deadlines,
            self._late.add,
            self._handover,
            waits=policy.raises or policy.overlap,
        )

    def _snapshot(self, link: AgentLink, step: int, *, last: bool) -> bool:
        if self._replaced:
            return self._judge(failed(_REPLACED))
        try:
            step = step_number(step)
            own = self._own_files.exchange(step) if self._own_files is not None else None
            if own is None and self._is_unplanned(link, step):
                return False
            shards = self._capture.views()
            device = self._device_for(shards)
            usual = self._usual or self._new_exchange(link)
            exchange = own or (replace(usual, waits=True) if last else usual)
            saving = Saving(step, shards, exchange, self._tools, device)
        except (StateError, StepError) as error:  # their sentences say it all
            return self._judge(failed(str(error), error))
        except Exception as error:  # noqa: BLE001 - a state that cannot be saved ends no training
            return self._judge(failed(f"{type(error).__name__}: {error}", error))
        if exchange.policy.overlap and self._background.begin(saving):
            return True
        saving.run()
        return self._judge(saving.outcome)

    def _is_unplanned(self, link: AgentLink, step: int) -> bool:
        unplanned = self._unplanned
        return unplanned.session == link.session and step < unplanned.next_step

    def _device_for(self, shards: tuple[ShardView, ...]) -> Device | None:
        if self._device is None and any([shard.cuda is not None for shard in shards]):
            from everstep.copy_engine.cuda import (
                TorchCuda,  # torch is there: the state has its tensors
            )

            self._device = TorchCuda()
        return self._device

    def _take_outcome(self) -> None:
        outcome = self._background.finish()
        if outcome is None and self._usual is not None and self._handover.commit is not None:
            outcome = self._usual.finish_commit()
        if outcome is not None:
            self._judge(outcome)

    def _judge(self, outcome: Outcome) -> bool:
        """Count, tell once, remember; return whether the step is saved. Raises if asked to."""
        self._saved_last = outcome.ending is Ending.SAVED
        if outcome.ending is Ending.UNPLANNED:
            self._unplanned = outcome
            return False
        if outcome.ending is not Ending.SAVED:
            self._failed_steps += 1
        self._tell_once(outcome.reason)
        allowed = outcome.ending is Ending.SKIPPED and self._policy.on_full == "skip"
        if outcome.ending is not Ending.SAVED and self._policy.raises and not allowed:
            raise SnapshotError(outcome.reason) from outcome.error
        return outcome.ending is Ending.SAVED

    def _tell_once(self, complaint: str) -> None:
        if complaint == self._complaint:
            return
        if complaint:
            told = self._lines.warn("steps are not saved: %s", complaint)
        else:
            told = self._lines.warn("steps are saved again; %d were not", self.unsaved_steps)
        if told:
            self._complaint = complaint


class Settling(Protocol):
    """Snapshots that may still be copying the state."""

    def settle(self) -> None:
        """Return when the state may change."""
        ...


class _Handle(Protocol):
    def remove(self) -> None: ...


@runtime_checkable
class _Optimizer(Protocol):
    """Optimizer with the hook of torch.optim.Optimizer, whatever library it comes from."""

    def register_step_pre_hook(self, hook: Callable[..., None], /) -> _Handle:
        """Have the hook called before each update."""
        ...


def settle_before_updates(parts: Iterable[object], snapshots: Settling) -> None:
    """Have every optimizer settle the snapshot before it updates anything.

    Every one of torch's in this process, for one that is no part of the state may change a model
    that is; and the parts of the state that have such a hook of their own.
    """
    reference = weakref.ref(snapshots)

    def settle(*_: object) -> None:
        if (still := reference()) is not None:
            still.settle()

    handles = [
        part.register_step_pre_hook(settle) for part in parts if isinstance(part, _Optimizer)
    ]
    if "torch" in sys.modules:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        handles.append(register_optimizer_step_pre_hook(settle))
    for handle in handles:
        if hasattr(handle, "remove"):
            weakref.finalize(snapshots, handle.remove).atexit = False
