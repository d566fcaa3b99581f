"""Node of the vault benchmarks: an agent's jobs and vault in a process; the benchmark commands it.

Arguments: folder, name of the node, slots of a rank, folder of certificates (or "": without TLS).
One command a line on standard input, each answered by a line of JSON: what a controller would send,
and what it would hear.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.processes import START_PATIENCE_S

from everstep_agent.jobs.job.context import Environment
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.copies import CopyKey
from everstep_agent.vault.verification import hash_in_parallel
from everstep_common.launcher_messages import Start
from everstep_common.orders import SpareMemory, VaultDirective
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from everstep_proto.tls import TlsSettings
from integration.vault_world import (
    KEY,
    Client,
    Kept,
    Node,
    identify,
    launcher,
    plan,
    running,
    settings,
)

_PATIENCE_S = START_PATIENCE_S
_LOOK_S = 0.002


class Commands:
    """Commands of the benchmark to the node."""

    def __init__(self, node: Node, control: Client) -> None:
        self._node = node
        self._control = control
        self._generation = 0

    async def take(self, words: list[str]) -> object:
        """Do one command and return what to answer."""
        match words:
            case ["address"]:
                return self._node.jobs.bulk_address
            case ["verified", step]:
                return await self._until(lambda: self._copies(int(step)))
            case ["recoverable", step, *target]:
                self._direct(int(step), target)
                return True
            case ["replicate", step, *target]:
                return await self._replicate(int(step), target)
            case ["source", step]:
                (copy,) = self._copies(int(step))
                found = self._node.source(self._node, int(step), 0, copy.generation)
                return found.SerializeToString().hex()
            case _:
                return await self._take_place(words)

    async def _take_place(self, words: list[str]) -> object:
        match words:
            case ["wait_as_spare", size_bytes]:
                return await self._wait_as_spare(int(size_bytes))
            case ["start", generation, *sources]:
                return await self._start(int(generation), sources)
            case ["fetch", generation, *sources]:
                return await self._fetch(int(generation), sources)
            case ["hash", step]:
                return await self._hash(int(step))
            case _:
                raise ValueError(f"not a command: {words}")

    async def _start(self, generation: int, sources: list[str]) -> bool:
        parsed = tuple(fleet_pb2.ShardSource.FromString(bytes.fromhex(one)) for one in sources)
        step = parsed[0].step if parsed else None
        self._generation = generation
        self._node.order(start_generation=plan(generation, parsed, step=step))
        while not isinstance(await self._control.hear(), Start):
            pass
        return True

    async def _wait_as_spare(self, copy_bytes: int) -> bool:
        """Wait until the memory is there that a spare makes."""
        wanted = fleet_pb2.SpareMemory(job="demo", copy_bytes=copy_bytes, processes=1, term=1)
        identify(wanted)
        self._node.jobs.on_spare_memory(from_wire(SpareMemory, wanted))
        slots = self._node.settings.slots_per_rank
        return await self._until(
            lambda: self._node.jobs.metrics().vault_memory_bytes >= (1 + slots) * copy_bytes
        )

    async def _fetch(self, generation: int, sources: list[str]) -> float:
        """Return the seconds from the plan until the copy that it names is here, verified."""
        began = time.monotonic()
        await self._start(generation, sources)
        step = fleet_pb2.ShardSource.FromString(bytes.fromhex(sources[0])).step
        await self._until(lambda: self._copies(step, replica=True))
        return time.monotonic() - began

    async def _hash(self, step: int) -> float:
        """Return the seconds that a copy of its own takes to be verified once more."""
        (copy,) = self._copies(step)
        vault = self._vault()
        held = vault.holdings.pin(CopyKey(copy.generation, copy.rank, copy.step))
        if held is None:
            raise RuntimeError(f"the copy of step {step} is gone")
        try:
            began = time.monotonic()
            found = await hash_in_parallel(
                vault.context.threads, held.region, held.manifest.size_bytes
            )
            took_s = time.monotonic() - began
        finally:
            held.release()
        if found != copy.root_hash:
            raise RuntimeError(f"the copy of step {step} is bad")
        return took_s

    def _vault(self) -> JobVault:
        (job,) = self._node.jobs.table.named("demo")
        return job.vault

    def _copies(self, step: int, *, replica: bool = False) -> list[fleet_pb2.VaultCopy]:
        report = self._node.outlet.reports.get("demo")
        copies = report.copies if report else ()
        return [copy for copy in copies if (copy.step, copy.replica) == (step, replica)][:1]

    def _direct(self, step: int, target: list[str]) -> None:
        directive = fleet_pb2.VaultDirective(
            job="demo",
            generation=self._generation,
            recoverable_step=step,
            transfer_key=KEY,
            term=1,
        )
        if target:
            directive.replica_target, directive.replica_bulk_address = target
        identify(directive)
        self._node.jobs.on_directive(from_wire(VaultDirective, directive))

    async def _replicate(self, step: int, target: list[str]) -> float:
        """Return the seconds from the order until the other node has acknowledged the hash."""
        vault = self._vault()
        before = vault.context.counters.replicated
        began = time.monotonic()
        self._direct(step, target)
        async with asyncio.timeout(_PATIENCE_S):
            # Not looked for every 2 ms: that was a tenth of the sender's CPU.
            while vault.context.counters.replicated == before:
                await vault.change_signal.wait()
        return time.monotonic() - began

    async def _until(self, true: Callable[[], object]) -> bool:
        async with asyncio.timeout(_PATIENCE_S):
            while not true():  # noqa: ASYNC110 - counters of the agent have no event
                await asyncio.sleep(_LOOK_S)
        return True


async def main(folder: Path, name: str, slots: int, certificates: str) -> None:
    """Serve until standard input ends."""
    chosen = settings(folder, slots_per_rank=slots, bulk_tls=bool(certificates))
    world = Environment(stored_fds={}, keeper=Kept(), tls=_tls(Path(certificates), name))
    async with (
        running(chosen, name, world) as node,
        launcher(node) as control,
    ):
        commands = Commands(node, control)
        print(json.dumps("ready"), flush=True)
        while words := (await asyncio.to_thread(sys.stdin.readline)).split():
            print(json.dumps(await commands.take(words)), flush=True)


def _tls(folder: Path, name: str) -> TlsSettings:
    return TlsSettings(
        ca=folder / "ca.pem", certificate=folder / f"{name}.pem", key=folder / f"{name}.key"
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
