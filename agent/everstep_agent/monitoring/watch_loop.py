"""Watch loop: reads each source in its rhythm and hands its judgements to the findings."""

import asyncio
from collections.abc import Collection, Sequence

from everstep_agent.concurrency.common_tick import next_tick
from everstep_agent.detectors.agent import judge_probe
from everstep_agent.monitoring.findings import Findings
from everstep_agent.probes.read_thread import SharedThread
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.sources.source import ProbeResult, Source, ThreadedLook
from everstep_common.judging.judgement import Judgement

# A look that takes longer tells nothing for now: the longest that a healthy source needs.
_SLOW_LOOK_S = 5.0
# Pause before a look that was asked for, so that one look serves a burst of requests.
_STORM_PAUSE_S = 0.02


class Watch:
    """Loop over every source. One that fails or hangs is a finding; the others go on."""

    def __init__(self, sources: Sequence[Source], findings: Findings) -> None:
        self.sources = tuple(sources)
        self._findings = findings
        # One lock per source: a look out of turn (a check) and a regular one must not overlap.
        self._turns = {source.name: asyncio.Lock() for source in sources}
        self._bells = {source.name: _Bell() for source in sources}
        self._latest: dict[str, ProbeResult] = {}
        self._began_s: dict[str, float] = {}
        thread = SharedThread("probes")
        for worker in (worker for source in sources for worker in _quick(source)):
            worker.share(thread)

    async def run(self) -> None:
        """Look in every source's rhythm until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self.sources:
                group.create_task(self._repeat(source), name=f"probe-{source.name}")

    async def probe_now(self, groups: Collection[str] = ()) -> Sequence[ProbeResult]:
        """Look once, out of turn, at everything or at the sources of these groups."""
        chosen = [one for one in self.sources if not groups or one.group in groups]
        return await asyncio.gather(*(self._once(source) for source in chosen))

    def latest(self) -> Sequence[ProbeResult]:
        """Return the newest look at each source; one that takes long, or never came, is trouble."""
        return [self._newest(source.name) for source in self.sources]

    def _newest(self, name: str) -> ProbeResult:
        now_s = asyncio.get_running_loop().time()
        waited_s = now_s - self._began_s.get(name, now_s)
        if waited_s > _SLOW_LOOK_S:
            return ProbeResult(name, trouble=f"no answer for {waited_s:.0f} s")
        return self._latest.get(name) or ProbeResult(name, trouble="not read yet")

    def look_soon(self, name: str) -> None:
        """Have a source looked at at once. Event loop only."""
        self._bells[name].ring()

    async def _repeat(self, source: Source) -> None:
        loop, bell, due = asyncio.get_running_loop(), self._bells[source.name], 0.0
        stop = source.listen(bell.ring)
        try:
            while True:
                bell.silence()
                await self._once(source)
                if loop.time() >= due:
                    due = next_tick(loop.time(), source.interval_s)
                if await bell.rings_before(due):
                    await asyncio.sleep(_STORM_PAUSE_S)
        finally:
            stop()

    async def _once(self, source: Source) -> ProbeResult:
        judgements: Sequence[Judgement] = ()
        failure = hang = denied = ""
        async with self._turns[source.name]:
            self._began_s[source.name] = asyncio.get_running_loop().time()
            try:
                judgements = await source.look()
            except TimeoutError as error:
                hang = str(error) or "no answer within its deadline"
            except PermissionError as error:
                denied = str(error)
            except (OSError, ValueError) as error:
                failure = str(error) or type(error).__name__
            self._findings.report([*judgements, *judge_probe(source.name, failure or denied, hang)])
            source.told()
            self._began_s.pop(source.name, None)
            result = ProbeResult(source.name, tuple(judgements), hang or failure, denied)
            self._latest[source.name] = result
        return result


def _quick(source: Source) -> Sequence[ProbeWorker]:
    look = source.look
    return (*source.workers, look.worker) if isinstance(look, ThreadedLook) else source.workers


class _Bell:
    """Rung by whoever asks for a look at once; one ring or many are the same."""

    def __init__(self) -> None:
        self._rung = False
        self._sleeper: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rung = True
        self._end_sleep()

    def silence(self) -> None:
        self._rung = False

    async def rings_before(self, due: float) -> bool:
        """Wait until it rings or this moment has come; return whether it rang."""
        if self._rung:
            return True
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        # Instead of asyncio.timeout_at, at a tenth of its cost: an idle agent does little else.
        alarm = loop.call_at(due, self._end_sleep)
        try:
            await self._sleeper
        finally:
            alarm.cancel()
        return self._rung

    def _end_sleep(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)
