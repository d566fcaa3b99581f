"""Generation stopping: ends a generation's processes here, also without help of the launcher."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep_agent.ipc.processes import ProcessIdentity, kill, wait_dead
from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.job.local_processes import LocalProcesses
from everstep_agent.jobs.job.peers import ConnectedRanks, LauncherLink
from everstep_agent.jobs.job.progress_flow import ProgressFlow
from everstep_agent.jobs.standing.standing_watch import StandingWatch
from everstep_agent.jobs.state.facts import JobFacts
from everstep_agent.jobs.state.job_record import JobRecord
from everstep_agent.jobs.state.lifecycle import Effect
from everstep_agent.jobs.state.records import stopped_record
from everstep_agent.vault.job_vault import JobVault
from everstep_common import launcher_messages

logger = logging.getLogger(__name__)
# How long the last messages of dead processes are awaited: they were sent before the death, but a
# connection that waits for a slot reads them late.
_DRAIN_S = 0.1
# How long a launcher looks at ranks before it stops them (everstep.launch.inspection.reading).
_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class RunningParts:
    """Running parts of a job, and the place of its facts."""

    record: JobRecord
    link: LauncherLink
    ranks: ConnectedRanks
    processes: LocalProcesses
    progress: ProgressFlow
    vault: JobVault
    standing: StandingWatch


class GenerationStopper:
    """Ends the generations of one job on this node, and says so once they have. Event loop only."""

    def __init__(
        self,
        parts: RunningParts,
        context: JobContext,
        report_copies: Callable[[], None],
        restart_in_place: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self._record = parts.record
        self._context = context
        self._report_copies = report_copies
        self._restart_in_place = restart_in_place
        # How much memory of each GPU was in use before the ranks came; {}: not known.
        self._memory_before: Mapping[str, int] = {}
        # The generation whose GPUs are waited for, and whether the controller asked meanwhile.
        self._releasing = 0
        self._asked_meanwhile = False

    def begin(self) -> None:
        """Another generation begins here: note what is in use before it."""
        self._memory_before = self._context.devices.memory_in_use()

    def order(self, generation: int, grace_s: float, reason: str, *, look: bool = False) -> None:
        """Stop a generation as the controller wants; what is stopped already is said again."""
        if generation <= self._record.facts.stops.completed:
            if self._releasing and self._releasing <= generation:
                self._asked_meanwhile = True  # it is told when the GPUs are free
            else:
                self._report(generation, self._context.boot_ns())
            return
        if Effect.STOP_PROCESSES not in self._record.order_stop(generation):
            return
        self.stop_processes(generation, grace_s, reason, look=look)
        if not self._parts.link.connected and not self._parts.processes.any_alive():
            self._context.spawn(self.complete(generation, self._context.boot_ns()), "stopped")

    def stop_processes(
        self, generation: int, grace_s: float, reason: str, *, look: bool = False
    ) -> None:
        """Have the launcher end the processes of a generation, or the agent in its place.

        ``look``: after it has looked at them.
        """
        self._parts.standing.end(generation)
        stop = (
            launcher_messages.StopAfterLook
            if look and self._parts.link.looks
            else launcher_messages.Stop
        )
        self._parts.link.send(stop(generation, grace_s, reason))
        self.enforce(generation, grace_s + _LOOK_S * look)

    def enforce(self, generation: int, grace_s: float) -> None:
        """See to it that a generation ends, whatever its launcher does."""
        if self._record.facts.stops.completed < generation:
            patience_s = grace_s + self._context.settings.stop_patience_s
            work = self._kill_unstopped(generation, patience_s)
            self._context.spawn(work, f"stop {self._record.facts.job}")

    async def complete(self, generation: int, at_boot_ns: int) -> None:
        """No process of the generation is left: verify what it committed, then say so.

        The next one may start here then: so its GPUs are waited for meanwhile.
        """
        link, at_ns = self._parts.link, min(at_boot_ns, self._context.boot_ns())
        self._asked_meanwhile = False
        # What ran here is not known any more once the stop is complete.
        release = asyncio.ensure_future(self._await_devices(generation, self._record.facts))
        try:
            effects = await self._settle(generation, asked=True)
            held = await release
        finally:
            release.cancel()
        trusted = link.connected and not link.distrust
        own = Effect.RESTART_IN_PLACE in effects and not self._asked_meanwhile
        if trusted and own and self._restart_in_place():
            return
        self._report(generation, at_ns, held)

    async def _await_devices(self, generation: int, facts: JobFacts) -> tuple[str, ...]:
        """Return the GPUs whose memory does not become free; none where nobody needs them again."""
        over = facts.ended or generation <= facts.autonomy.left
        if over or facts.processes.abandoned or generation < facts.newest_generation:
            return ()
        self._releasing = generation
        try:
            pids = frozenset(one.pid for one in facts.processes.running)
            return await self._context.devices.wait(pids, self._memory_before)
        finally:
            self._releasing = 0

    async def settle(self, generation: int) -> None:
        """Take nothing more of the generation, and report its copies as final."""
        await self._settle(generation, asked=False)

    async def _settle(self, generation: int, *, asked: bool) -> tuple[Effect, ...]:
        await self.drain(generation)
        await self._parts.vault.settle(generation, self._context.settings.settle_timeout_s)
        effects = self._record.complete_stop(generation, asked=asked)
        self._report_copies()
        return effects

    def _report(self, generation: int, at_boot_ns: int, held: tuple[str, ...] = ()) -> None:
        record = stopped_record(self._record.facts, generation, at_boot_ns, held)
        self._context.outlet.record(record)

    async def drain(self, generation: int, rank: int | None = None) -> None:
        """Take what a rank (None: all of them) had sent before it died, and tell its steps."""
        ranks = self._parts.ranks
        try:
            async with asyncio.timeout(_DRAIN_S):
                while ranks.has(generation, rank):
                    await ranks.detached.wait()
        except TimeoutError:
            job = self._record.facts.job
            logger.info("job %s: a rank is gone, its connection is not", job)
        self._parts.progress.flush()

    async def await_departure(self, grace_s: float) -> str:
        """Return why a launcher that is away is gone, once all its processes are, too.

        Cancelled when it comes back.
        """
        launcher = self._record.facts.place.process
        reason = "its process ended"
        if launcher is not None:
            reason = await self._away_for_good(launcher, grace_s)
        for process in self._record.facts.processes.running:
            await wait_dead(process)
        facts = self._record.facts
        if facts.stops.ordered > facts.stops.completed:
            await self.complete(facts.newest_generation, self._context.boot_ns())
        else:
            await self.settle(facts.newest_generation)
        return reason

    async def _away_for_good(self, launcher: ProcessIdentity, grace_s: float) -> str:
        while True:
            try:
                async with asyncio.timeout(grace_s):
                    await wait_dead(launcher)
                return "its process ended"
            except TimeoutError:
                if not self._parts.processes.alive():
                    distrust = self._parts.link.distrust
                    return distrust or "it closed its connection and did not come back"

    async def _kill_unstopped(self, generation: int, patience_s: float) -> None:
        """Give a launcher time to stop a generation, then kill its ranks in its place.

        It may be stopped itself, or hang on a dead file system: the others must not wait for it.
        """
        await asyncio.sleep(patience_s)
        facts, link = self._record.facts, self._parts.link
        if facts.stops.completed >= generation or facts.place.process is None:
            return
        link.distrust = f"it did not stop generation {generation} within {patience_s:g} s"
        await self._kill_ranks(link.distrust)
        if self._record.facts.stops.completed < generation:
            await self.complete(generation, self._context.boot_ns())
        if link.peer is not None and link.distrust:
            # The launcher does not answer; if it continues one day, it has to join anew.
            link.peer.hang_up()

    async def _kill_ranks(self, reason: str) -> None:
        ranks = self._parts.processes.alive()
        logger.warning(
            "job %s: the launcher is not counted on: %s; killing its ranks: processes %s",
            self._record.facts.job,
            reason,
            ", ".join(str(rank.pid) for rank in ranks) or "none",
        )
        self._context.stop_counts.launchers_overruled += 1
        for rank in ranks:
            try:
                kill(rank)
            except PermissionError:
                logger.warning("process %d cannot be killed: the agent needs CAP_KILL", rank.pid)
        for rank in ranks:
            await wait_dead(rank)
