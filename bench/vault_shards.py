"""Shard benchmark: the longest hold of an agent's event loop by a commit of very many shards.

Every step has a manifest of its own, as with ``hash="trainer"``. The agent is a process of its own,
without a controller; a hold is what one turn of its loop takes of the processor, whoever waits. So
``python bench/vault_shards.py --shards 200000``; ``--json`` as in ``vault.py``.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from vault_figures import Figure, Series, show

from everstep_agent.concurrency.cycle_collector import collect_young_only
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_common.trainer_messages import (
    TO_TRAINER,
    Attached,
    Begin,
    Commit,
    Committed,
    Entry,
    Slot,
)
from integration.vault_world import (
    Client,
    Node,
    attach_message,
    launcher,
    plan,
    running,
    settings,
)

_SHARD_BYTES = 64


@dataclass(frozen=True, slots=True)
class Work:
    """So many steps, each of so many shards."""

    shards: int
    steps: int


class Holds:
    """Measures what each turn of a handle takes of the loop's thread."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        before = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            before(handle)
            self.longest_s = max(self.longest_s, time.thread_time() - began)

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]

    def taken(self) -> float:
        """Return the longest since the last time."""
        found, self.longest_s = self.longest_s, 0.0
        return found


async def serve(folder: Path) -> None:
    """Be the agent; answer each line of standard input with the longest hold since the last."""
    holds, loop = Holds(), asyncio.get_running_loop()
    async with running(settings(folder)) as node, launcher(node):
        node.order(start_generation=plan(1))
        print(json.dumps("ready"), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if step := int(line):
                await node.outlet.until(lambda: _has(node, step))
                node.direct(1, step)
            print(json.dumps(holds.taken()), flush=True)


def _has(node: Node, step: int) -> bool:
    return any(key[2] == step for key in node.outlet.copies())


async def commits(chosen: JobsSettings, agent: "subprocess.Popen[str]", work: Work) -> list[float]:
    """Return the longest hold of each step, until it is verified."""
    found: list[float] = []
    rank = await Client.connect(_Reached(chosen), TO_TRAINER)
    try:
        attached = await rank.ask(attach_message())
        assert isinstance(attached, Attached), attached
        await rank.reserve(work.shards * _SHARD_BYTES)
        for step in range(1, work.steps + 1):
            slot = await rank.ask(Begin(step))
            assert isinstance(slot, Slot), slot
            done = await rank.ask(Commit(step, slot.slot, slot.epoch, _manifest(work.shards, step)))
            assert done == Committed(step), done
            found.append(_asked(agent, step))
    finally:
        rank.close()
    return found


@dataclass
class _Reached:
    settings: JobsSettings


def _manifest(shards: int, step: int) -> tuple[Entry, ...]:
    size = _SHARD_BYTES
    return tuple(Entry(f"layers.{i}.{step}", i * size, size, "BF16") for i in range(shards))


def _asked(agent: "subprocess.Popen[str]", step: int) -> float:
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(f"{step}\n")
    agent.stdin.flush()
    return float(json.loads(agent.stdout.readline()))


def measure(work: Work) -> Iterator[Figure]:
    """Yield the longest holds."""
    with tempfile.TemporaryDirectory(prefix="es") as folder:
        line = [sys.executable, __file__, "--serve", folder]
        with subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as agent:
            assert agent.stdin is not None
            assert agent.stdout is not None
            agent.stdout.readline()
            holds = asyncio.run(commits(settings(Path(folder)), agent, work))
            agent.stdin.close()
    named = f"longest hold of the loop in a commit of {work.shards:,} shards"
    yield Series(named, [1000 * one for one in holds], "ms of CPU").figure()
    yield Series(f"the worst of {work.steps}", [1000 * max(holds)], "ms of CPU").figure()


def main() -> None:
    """Measure and print, or be the agent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--shards", type=int, default=200_000, help="of each step")
    # More than manifests are kept beyond their use: the first ones are removed, too.
    parser.add_argument("--steps", type=int, default=20, help="each with another manifest")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        collect_young_only()
        asyncio.run(serve(given.serve))
        return
    show(list(measure(Work(given.shards, given.steps))), given.json)


if __name__ == "__main__":
    main()
