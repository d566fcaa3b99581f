"""Run: a training process's place in its job, and its reports to the agent of its node."""

import contextlib
import logging
import os
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import SupportsFloat

from everstep.copy_engine.memory import Copier
from everstep.copy_engine.views import Capture, State
from everstep.loss import (
    BadStepError,
    LossPolicy,
    LossWatch,
    OnBad,
    batch_index,
    range_to_skip,
)
from everstep.rank.agent_link import SILENCE_S, AgentLink
from everstep.rank.declared import DeclaredProgress, page_of_process
from everstep.rank.environment import (
    Membership,
    local_world_size,
    membership,
    rank,
    world_size,
    world_size_wanted,
)
from everstep.rank.import_recorder import ImportRecorder
from everstep.rank.sdk_log import RateLimitedLogger, TerminalLog
from everstep.rank.termination import TerminationGuard
from everstep.saving.digest import xxh3_128
from everstep.saving.early import Early
from everstep.saving.policy import Deadlines, Hasher, OnFull, Policy
from everstep.saving.restoring import Restorer
from everstep.saving.snapshotter import Snapshots, settle_before_updates
from everstep.saving.step_saving import Tools
from everstep.saving.steps import StepError, step_number
from everstep.shares import Share, share_of
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place
from everstep_common.clock import boot_ns
from everstep_common.codec import CodecError, from_json, to_json
from everstep_common.rank_messages import (
    AskSkipped,
    DataRange,
    Progress,
    RankReport,
    RollbackAsked,
    Skipped,
)

logger = logging.getLogger("everstep")

# A rank that has a state to restore needs its agent, and one that is being restarted is back within
# a second or two.
ATTACH_TIMEOUT_S = 10.0


class Run:
    """One rank of one generation. Outside a job, everything works and does nothing."""

    def __init__(
        self,
        member: Membership | None,
        link: AgentLink | None,
        environ: Mapping[str, str],
        losses: LossPolicy | None = None,
    ) -> None:
        self._link = link
        self._losses = LossWatch(losses or LossPolicy())
        self._skipped: tuple[DataRange, ...] | None = None
        self._completed: int | None = None
        self._snapshots: Snapshots | None = None
        self._lines = RateLimitedLogger(logger)
        self._imports = ImportRecorder(environ)
        self._environ = environ
        send = link.send_message if link else lambda _: False
        self._declared = DeclaredProgress(page_of_process(environ) if link else None, send)
        self._copier = Copier.for_node(local_world_size(environ))
        self.rank = rank(environ)
        self.world_size = world_size(environ)
        # What it is when no node is missing (--nnodes MIN:MAX, times the processes of a node).
        self.world_size_wanted = world_size_wanted(environ)
        self.generation = member.generation if member else 0

    @property
    def active(self) -> bool:
        """Whether this process takes part in a job (and is not a child forked by one that does)."""
        return self._link is not None and self._link.usable

    @property
    def restore_step(self) -> int | None:
        """The step that the recovery plan restores; None: from the beginning."""
        return self._link.restore_step if self._link else None

    @property
    def unsaved_steps(self) -> int:
        """How many steps could not be snapshotted."""
        return self._snapshots.unsaved_steps if self._snapshots else 0

    def step(self, step: int) -> None:
        """Tell that ``step`` is complete; call after its snapshot. Never waits, never raises."""
        with contextlib.suppress(StepError):
            self._completed = step_number(step)
        link = self._link
        if link is None or not link.usable:
            return
        if link.attach_quickly():
            link.ready()
        stall_ns = self._snapshots.take_stall_ns() if self._snapshots else 0
        try:
            number = step_number(step)
        except StepError as error:
            self._lines.warn("progress is not told: %s", error)
            return
        self._imports.write()  # standbys are made as soon as all ranks have told a step
        now_ns = boot_ns()
        self._declared.complete_step(number, now_ns)
        link.tell_progress(Progress(number, now_ns, stall_ns, self.unsaved_steps))

    def phase(self, name: str) -> None:
        """Tell that a part of the step begins ("forward"); no more than some stores to memory.

        A rank that hangs is then shown with its phase, and how long is usual is learned for each of
        up to 15 phases.
        """
        self._declared.enter_phase(name)

    def waiting(self) -> AbstractContextManager[None]:
        """Return a context in which this rank waits for others: ``with run.waiting():``.

        Put it around collectives; on a GPU, synchronise before it and within it. What is left of
        each step is the rank's own work, by which 'everstep job NAME slow' tells who makes the
        others wait. Two readings of the clock; outside a job it does nothing else.
        """
        return self._declared.waiting()

    def role(self, name: str) -> None:
        """Tell which part of the model this rank computes ("stage 3"): only like is compared."""
        self._declared.name_role(name)

    def pause(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which no step is expected: ``with run.pause("evaluation"):``.

        Within it the job is not held to stand still. Pauses may be nested; outside a job it does
        nothing.
        """
        return self._declared.pause(name)

    @property
    def skipped(self) -> tuple[DataRange, ...]:
        """The data that this generation leaves out, after rollbacks that asked for it.

        Raises ConnectionError when the agent does not say: ranks must not train on different data.
        """
        if self._skipped is None:
            self._skipped = self._ask_skipped(self._link) if self._link else ()
        return self._skipped

    def _ask_skipped(self, link: AgentLink) -> tuple[DataRange, ...]:
        answer, patience_s = None, Deadlines().restore_s
        if link.attached or link.attach(patience_s):
            answer, _ = link.ask(AskSkipped(), (Skipped,), patience_s, silence_s=patience_s)
        if isinstance(answer, Skipped):
            return answer.ranges
        raise ConnectionError("the agent did not say which data is left out")

    def batch_index(self, step: int) -> int:
        """Return which batch ``step`` takes: its own number, moved past the data left out."""
        return batch_index(step, self.skipped)

    def share(self, global_batch: int, micro_batch: int) -> Share:
        """Return which samples of the global batch this rank takes, in how many micro-batches.

        The batch stays the same when the job goes on with fewer ranks. Raises ValueError.
        """
        return share_of(global_batch, micro_batch, self.rank, self.world_size)

    def report(self, step: int | None = None, *, loss: SupportsFloat, spike: bool = False) -> None:
        """Tell the loss of ``step``, before its snapshot; ``spike``: it is one by your own rule.

        Without ``step`` it is the one after that which `step` told last. Raises BadStepError, where
        `init` was told to, for a loss that is no number or a spike; with "rollback" the job then
        goes on from a state before this step.
        """
        step = self._step_in_hand() if step is None else step
        verdict = self._losses.judge(step, float(loss), spike=spike)
        if verdict is None or verdict.then == "ignore":
            return
        if verdict.then == "rollback":
            if self._link is None or not self._link.usable:
                return  # outside a job there is nothing to go back to
            self._ask_back(step, verdict.sentence)
        raise BadStepError(verdict.sentence)

    def judge_losses_by(self, policy: LossPolicy) -> None:
        """Let `report` do what this policy says, from now on."""
        if policy != self._losses.policy:
            self._losses = LossWatch(policy)

    def send_report(self, report: RankReport) -> bool:
        """Send what this rank has to say to the controller; return whether the agent has it.

        Never waits for an answer, never raises: what breaks its bounds is logged and not sent. The
        agent sees to generation, rank and time.
        """
        link = self._link
        if link is None:
            return False
        try:
            from_json(type(report), to_json(report))  # the agent hangs up on a message that is none
        except CodecError as error:
            self._lines.warn("this is not reported: %s", error)
            return False
        return link.attach_quickly() and link.send_message(report)

    def _step_in_hand(self) -> int:
        before = self.restore_step if self._completed is None else self._completed
        return 0 if before is None else before + 1

    def _ask_back(self, step: int, reason: str) -> None:
        batches = self._losses.policy.skip_batches
        skip = range_to_skip(step, self.skipped, batches) if batches else None
        asked = RollbackAsked(step=step, reason=reason, at_boot_ns=boot_ns(), skip=skip)
        self.send_report(asked)

    def snapshots(
        self,
        state: State | Capture,
        *,
        overlap: bool = False,
        on_full: OnFull = "block",
        wait_s: float | None = None,
        hash: Hasher = "agent",
        raises: bool = False,
        equal: Collection[object] = (),
        replaceable: Collection[str] = (),
    ) -> Snapshots:
        """Return the snapshots of ``state``: the shards of this rank by their names in the job.

        ``overlap`` copies while the next step computes; ``on_full`` and ``wait_s`` (seconds) say
        what happens with no slot free; ``hash="trainer"`` covers the copy too; ``equal`` names what
        is the same on every rank, of which each saves its share (a DistributedDataParallel in it:
        its parameters); ``replaceable`` names that of which another rank's will do when all copies
        of a rank's own are lost. Raises StateError, ValueError, DigestError.
        """
        if self._link is not None and self._snapshots is None:
            TerminationGuard.install(self._environ)
        policy = Policy(overlap=overlap, on_full=on_full, wait_s=wait_s, hash=hash, raises=raises)
        digest = xxh3_128() if policy.hash == "trainer" and self._link else None
        parts = state if isinstance(state, Mapping) else {}
        capture = capture_of(state, Place(self.rank, self.world_size), equal, replaceable)
        if self._snapshots is not None:
            self._snapshots.replace()
        self._snapshots = Snapshots(
            capture,
            self._link,
            Tools(self._copier, digest, Early(parts)),
            policy=policy,
        )
        if overlap:
            settle_before_updates(parts.values(), self._snapshots)
        return self._snapshots

    def restorer(self) -> Restorer | None:
        """Return what reads the plan's step shard by shard; None: this process is in no job."""
        link = self._link
        if link is None or not link.usable:
            return None
        limits, fresh = Deadlines(), link.starts_fresh
        patience_s = limits.fresh_s if fresh else limits.restore_s
        return Restorer(link, self._copier, time, patience_s, fresh)


def init(
    environ: Mapping[str, str] = os.environ,
    *,
    on_nan: OnBad = "ignore",
    on_spike: OnBad = "ignore",
    spike_ratio: float = 0.0,
    skip_batches: int = 0,
) -> Run:
    """Attach to the agent of this node. Raises RefusedError when it does not take this process.

    The others say what `Run.report` does about a bad loss: "ignore" it, "raise" BadStepError, or
    "rollback" the job to before it. A loss above ``spike_ratio`` times the median of the last 32 is
    a spike; ``skip_batches`` up to the bad one are then left out. Raises ValueError.
    """
    losses = LossPolicy(
        on_nan=on_nan, on_spike=on_spike, spike_ratio=spike_ratio, skip_batches=skip_batches
    )
    member = membership(environ)
    if member is None:
        return Run(None, None, environ, losses)
    TerminalLog.install()
    link = AgentLink(member)
    if not link.attach(SILENCE_S if member.starts_fresh else ATTACH_TIMEOUT_S):
        logger.warning("no agent at %s; steps are not saved until it is back", member.socket)
    return Run(member, link, environ, losses)
