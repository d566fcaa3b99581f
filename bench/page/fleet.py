"""Fleet for the page's benchmark: a controller in this process whose nodes and jobs are events.

Arguments: number of nodes. Each line of standard input is a command, answered by a line of JSON.
There are no agents behind the nodes, so that what the controller does is what it is asked.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from scale.fleet import Bench, connect, start_job

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.settings import Settings
from everstep_controller.main import collect_garbage_seldom
from everstep_controller.service import Controller, Options
from fakes.controllers import config
from fakes.local_secret import SECRET_FILE

JOB = "job-0"
_JOBS, _MEMBERS = 1, 16
_BATCH = 500
# Of so many nodes one has a finding from the beginning.
_ONE_OF = 40
_STEP_S, _TICK_S = 0.5, 0.002


@dataclass(slots=True)
class _Recorded(Bench):
    """A fleet that keeps what it was fed."""

    fed: list[events.Event] = field(default_factory=list)

    def take(self, event: events.Event) -> float:
        """Keep an event, and hand it to the core."""
        self.fed.append(event)
        self.now_ns += 1000
        self.core.handle(event, self.now_ns)
        return 0.0


@dataclass(slots=True)
class _Lateness:
    """How long the loop's own thread computes between two of its turns."""

    most_s: float = 0.0

    async def watch(self) -> None:
        """Look until cancelled."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(_TICK_S)
            now = time.thread_time()
            self.most_s = max(self.most_s, now - before)
            before = now


class Fleet:
    """The controller, and what it is told to do."""

    def __init__(self, controller: Controller, nodes: int) -> None:
        self._controller = controller
        self._recorded = _Recorded([f"n{number}" for number in range(nodes)], [])
        self._recorded.now_ns = time.time_ns()
        self._changed = 0
        self._step = 0
        self._lateness = _Lateness()
        self._tasks: list[asyncio.Task[None]] = []

    async def serve(self) -> None:
        """Take commands until standard input ends."""
        print(json.dumps("ready"), flush=True)
        commands: Mapping[str, Callable[..., Awaitable[object]]] = {
            "connect": self._connect,
            "change": self._change,
            "look": self._look,
        }
        while words := (await asyncio.to_thread(sys.stdin.readline)).split():
            print(json.dumps(await commands[words[0]](*map(int, words[1:]))), flush=True)

    async def _connect(self) -> Sequence[str]:
        """Let all nodes connect, a few have a finding, and jobs train; return how to ask."""
        recorded = self._recorded
        connect(recorded)
        for number in range(_JOBS):
            start_job(recorded, f"job-{number}", recorded.nodes[number * _MEMBERS :][:_MEMBERS])
        fed = recorded.fed[1:]  # the controller's own start is its own
        for at in range(0, len(fed), _BATCH):
            await self._submit(fed[at : at + _BATCH])
        await self._change(len(recorded.nodes) // _ONE_OF)
        self._tasks = [
            asyncio.create_task(self._train()), asyncio.create_task(self._lateness.watch())
        ]  # fmt: skip
        return f"127.0.0.1:{self._controller.port}", str(SECRET_FILE)

    async def _change(self, count: int) -> int:
        """Have some other nodes have a finding, from the last one down; return how many have."""
        names = self._recorded.nodes[::-1][self._changed : self._changed + count]
        self._changed += count
        now_ns = self._controller.runtime.now_ns()
        found = reports.FindingRaised(_FINDING)
        await self._submit(
            [events.Reported(self._recorded.origin(name), now_ns, found) for name in names]
        )
        return self._changed

    async def _look(self) -> Mapping[str, float]:
        """Return the processor time so far, and how long the loop was held at most since before."""
        held_s, self._lateness.most_s = self._lateness.most_s, 0.0
        return {"cpu_s": time.process_time(), "held_s": held_s}

    async def _train(self) -> None:
        """Have the first job make steps."""
        while True:
            await asyncio.sleep(_STEP_S)
            ended_ns = (self._controller.runtime.now_ns(),)
            done = events.JobProgressed(
                job=JOB, generation=1, first_step=self._step, end_ns=ended_ns, stall_ns=(0,)
            )
            self._step += 1
            await self._submit([done])

    async def _submit(self, fed: Sequence[events.Event]) -> None:
        await asyncio.gather(*map(self._controller.runtime.submit, fed))


_FINDING = Finding(
    component="link/mlx5_3/1",
    condition="LinkDegraded",
    mode=Mode.ADVISE,
    severity=Severity.DEGRADED,
    message="12 errors in a minute",
    evidence="symbol errors",
    suggested_action=SuggestedAction.NONE,
    rule="ours",
)


async def _run(nodes: int) -> None:
    collect_garbage_seldom()  # as the daemon does
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        settings = replace(config(Path(folder)), core=Settings(mode=Mode.ADVISE))
        running = Controller.open(settings, Options(Core, ""))
        await running.start()
        try:
            await Fleet(running, nodes).serve()
        finally:
            await running.stop()


if __name__ == "__main__":
    asyncio.run(_run(int(sys.argv[1])))
