"""The loop that looks at the node: each source in its rhythm, its judgements to the findings."""

import asyncio
from collections.abc import Collection, Sequence

from everstep_agent.detectors.agent import judge_probe
from everstep_agent.detectors.judgement import Judgement, Look
from everstep_agent.findings import Findings
from everstep_agent.source import Source

# Before a look that somebody asked for: one look takes what comes in a burst.
_STORM_PAUSE_S = 0.02


class Watch:
    """Looks at every source. One that fails or hangs is a finding; the others go on."""

    def __init__(self, sources: Sequence[Source], findings: Findings) -> None:
        self.sources = tuple(sources)
        self._findings = findings
        # A check looks out of turn; the thread behind a source does one thing at a time.
        self._turns = {source.name: asyncio.Lock() for source in sources}
        self._wakes = {source.name: asyncio.Event() for source in sources}

    async def run(self) -> None:
        """Look in every source's rhythm until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self.sources:
                group.create_task(self._repeat(source), name=f"probe-{source.name}")

    async def look(self, groups: Collection[str] = ()) -> Sequence[Look]:
        """Look once, out of turn, at everything or at the sources of these groups."""
        chosen = [one for one in self.sources if not groups or one.group in groups]
        return await asyncio.gather(*(self._once(source) for source in chosen))

    def look_soon(self, name: str) -> None:
        """Have a source looked at at once. Event loop only."""
        self._wakes[name].set()

    async def _repeat(self, source: Source) -> None:
        loop, wake = asyncio.get_running_loop(), self._wakes[source.name]
        stop = source.listen(wake.set)
        due = loop.time()
        try:
            while True:
                wake.clear()
                await self._once(source)
                if loop.time() >= due:
                    due = max(due + source.interval_s, loop.time())
                if await _woken(wake, due):
                    await asyncio.sleep(_STORM_PAUSE_S)
        finally:
            stop()

    async def _once(self, source: Source) -> Look:
        judgements: Sequence[Judgement] = ()
        failure = hang = denied = ""
        async with self._turns[source.name]:
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
        return Look(source.name, tuple(judgements), hang or failure, denied)


async def _woken(wake: asyncio.Event, due: float) -> bool:
    """Wait until somebody asks for a look, or it is due; return whether somebody asked."""
    try:
        async with asyncio.timeout_at(due):
            await wake.wait()
    except TimeoutError:
        return False
    return True
