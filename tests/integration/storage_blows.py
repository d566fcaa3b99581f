"""Jobs of one rank, one after the other from what was stored, whose agent ends at a message."""

import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.worker.messages import FillCopy, StorageLocation
from everstep_agent.storage.worker.rank_files import fill_copy
from everstep_agent.storage.worker.step_listing import list_steps
from everstep_agent.vault.snapshots.hashing import hash_bytes
from everstep_common.launcher_messages import TO_LAUNCHER, End, Joined, Start
from everstep_common.rank_messages import TO_TRAINER, Attached
from everstep_common.reports import Storage
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually, wait_until
from integration.storage_world import published, stored
from integration.vault_clients import Client, attach_message, join_message
from integration.vault_killed import RemoteJobs, environ
from integration.vault_states import STATE_BYTES, state_of
from integration.vault_world import Node, plan

_WORKER = Path(__file__).with_name("storage_worker_killing.py")
_TIDY_S = 10.0
# Storage is looked at first: for 10 s, and twice as long each time where a process that has just
# started gets too little of a busy machine to answer.
_TOLD_S = 150.0


def interpreter(folder: Path) -> str:
    """Make what stands for Python: it starts the storage process that looks at an order."""
    script = folder / "python"
    path = shlex.quote(f"PYTHONPATH={environ()['PYTHONPATH']}")
    program = shlex.join([sys.executable, str(_WORKER), str(folder / "order")])
    script.write_text(f"#!/bin/sh\nexec env {path} {program}\n")
    script.chmod(0o755)
    return str(script)


@dataclass(frozen=True)
class Blow:
    """The agent gets a signal at a moment of a request to its storage process."""

    request: str
    moment: str
    number: signal.Signals


@dataclass
class StoredJob:
    """What its controller knows of it: the newest step in storage."""

    node: Node
    agent: RemoteJobs
    folder: Path
    generation: int = 0
    step: int = 0
    whole: fleet_pb2.StoredStep | None = None
    _control: Client | None = None
    # Generation that the launcher runs.
    _running: int = 0
    _ranks: list[Client] = field(default_factory=list)
    # The agent that is to be ended, while it is.
    _doomed: int = 0

    def arm(self, blow: Blow) -> None:
        """Have the agent ended in its next job."""
        self._doomed = self.agent.pid
        order = self.folder / "order"
        order.with_suffix(".new").write_text(f"{blow.request}/{blow.moment}/{int(blow.number)}")
        order.with_suffix(".new").rename(order)

    async def live(self) -> None:
        """One job from its beginning to its end, which leaves one more step in storage."""
        self.generation, self._running = self.generation + 1, 0
        for stage in (self._start, self._restore, self._save, self._persist, self._publish):
            await self._through(stage)
        self.whole = self._told()[0]
        await self._through(self._end)
        self._hang_up()

    @property
    def spared(self) -> bool:
        """Return whether the moment at which the agent is to be ended has not come yet."""
        return bool(self._doomed)

    async def _through(self, stage: Callable[[], Awaitable[None]]) -> None:
        """Get a stage done, once more where the agent was ended in it."""
        while True:
            try:
                if self._control is None:
                    self._control = await self._join()
                await stage()
                if not self._struck():
                    return
            except OSError:
                if not self._struck():
                    raise
            await self.agent.another_than(self._doomed)
            self._doomed = 0
            self._hang_up()

    def _struck(self) -> bool:
        return bool(self._doomed) and not (self.folder / "order").exists()

    def _hang_up(self) -> None:
        for client in (*self._ranks, *filter(None, [self._control])):
            client.close()
        self._ranks.clear()
        self._control = None

    async def _join(self) -> Client:
        outlet = self.node.outlet
        before = len(outlet.bodies("launcher_joined"))
        control = await Client.connect(self.node, TO_LAUNCHER)
        self._ranks.append(control)
        place = Storage(path=str(self.folder / "steps"))
        asked = join_message(storage=place, running_generation=self._running)
        assert await control.ask(asked) == Joined("node-1")
        told = outlet.bodies
        # An agent that was ended tells nothing.
        await eventually(lambda: len(told("launcher_joined")) != before or self._struck(), _TOLD_S)
        if self._struck():
            raise ConnectionError
        joined = outlet.bodies("launcher_joined")[-1].launcher_joined
        assert self._running or self.whole is None or joined.latest == self.whole
        self._ranks.remove(control)
        return control

    async def _start(self) -> None:
        """Begin from what is stored; no memory has anything of it any more."""
        assert self._control is not None
        if self._running == self.generation:  # heard before the agent was ended
            return
        ordered = plan(self.generation, step=self.whole.step if self.whole else None)
        if self.whole is not None:
            ordered.stored.CopyFrom(self.whole)
        self.node.order(start_generation=ordered)
        while not isinstance(await self._control.hear(), Start):
            pass
        self._running = self.generation

    async def _attached(self) -> Client:
        rank = await Client.connect(self.node, TO_TRAINER)
        self._ranks.append(rank)
        said = await rank.ask(attach_message(generation=self.generation))
        assert isinstance(said, Attached), said
        return rank

    async def _restore(self) -> None:
        """What a rank gets is the whole step that was stored."""
        rank = await self._attached()
        if self.whole is not None:
            assert await rank.restore() == state_of(self.whole.step)

    async def _save(self) -> None:
        rank = self._ranks[-1] if self._ranks else await self._attached()
        self.step = (self.whole.step if self.whole else 0) + 1
        await rank.reserve(STATE_BYTES)
        await rank.save(self.step, state_of(self.step))
        wanted = (self.generation, 0, self.step, False)
        await self.node.outlet.until(lambda: wanted in self.node.outlet.copies())

    async def _persist(self) -> None:
        self.node.direct(self.generation, self.step, persist_steps=[self.step])
        self._copy = await stored(self.node, self.step, self.generation)

    async def _publish(self) -> None:
        said = published([self._copy], self.generation)
        self.node.direct(self.generation, self.step, persist_steps=[self.step], publish=said)
        await self.node.outlet.until(self._told)

    def _told(self) -> list[fleet_pb2.StoredStep]:
        report = self.node.outlet.reports["demo"]
        wanted = (self.generation, self.step)
        return [one for one in report.stored if (one.generation, one.step) == wanted]

    async def _end(self) -> None:
        assert self._control is not None
        self.node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))
        while not isinstance(await self._control.hear(), End):
            pass
        self._running = 0

    def in_storage(self) -> bytes:
        """Return what latest points to, read as anybody can: whole, and by its hash."""
        place = StorageLocation(str(self.folder / "steps"), "demo")
        backend = FolderBackend(place.path, place.job)
        seen = list_steps(backend, None)
        assert seen.latest is not None
        key = StepKey(self.generation, self.step)
        assert seen.latest.target == key
        memory = bytearray(STATE_BYTES)
        wanted = hash_bytes(memoryview(state_of(self.step)))
        request = FillCopy(place, key, 0, wanted)
        fill_copy(backend, request, memoryview(memory), lambda count: None)
        self._expect_no_temporaries()
        return bytes(memory)

    def _expect_no_temporaries(self) -> None:
        """Wait for what the storage process is still taking away; nothing else writes there now."""
        wait_until(lambda: not list((self.folder / "steps").rglob("*.tmp")), _TIDY_S)
