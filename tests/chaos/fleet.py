"""Fleet of simulated nodes in one process, which writes down all that its agents see and take.

Arguments: a file of settings (`FleetSettings`, JSON), and a file for the notes. Each line of
standard input is a command, answered by a line of JSON. A note is a line of JSON: when it was (this
machine's monotonic clock, which nobody steps), the node, what happened, and its particulars.
"""

import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from inspect import isawaitable
from pathlib import Path
from typing import IO

from chaos.simulated_node import NodePlace, SimulatedNode
from everstep_proto.local.client import LocalAccess
from everstep_proto.tls import TlsSettings

_STEP_S = 5.0
_LOOK_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """What a fleet is made of."""

    # By the name of the node: its job, "" for none.
    nodes: Mapping[str, str]
    controllers: tuple[str, ...]
    # Where the nodes' memories and certificates are; without certificates this machine's secret.
    folder: str
    certificates: str = ""
    secret: str = ""
    host: str = "127.0.0.1"
    # So many findings a second does each node raise and clear.
    findings_per_s: float = 0.0
    seed: int = 1

    def write(self, path: Path) -> None:
        """Write it to a file."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "FleetSettings":
        """Read it from a file."""
        told = json.loads(path.read_text())
        return cls(**{**told, "controllers": tuple(told["controllers"])})

    def place(self, name: str) -> NodePlace:
        """Return where a node is."""
        tls = TlsSettings()
        if self.certificates:
            stem = Path(self.certificates) / name
            tls = TlsSettings(
                ca=stem.with_name("ca.pem"),
                certificate=stem.with_suffix(".pem"),
                key=stem.with_suffix(".key"),
                server_name="localhost",
            )
        folder = Path(self.folder) / name
        folder.mkdir(parents=True, exist_ok=True)
        return NodePlace(
            name=name,
            controllers=tuple(
                LocalAccess(address=one, tls=tls, secret_file=Path(self.secret))
                for one in self.controllers
            ),
            folder=folder,
            host=self.host,
            job=self.nodes[name],
        )


class Fleet:
    """All nodes of the process."""

    def __init__(self, settings: FleetSettings, notes: IO[str]) -> None:
        self._settings, self._notes = settings, notes
        self._chance = random.Random(settings.seed)
        self._talking = settings.findings_per_s > 0
        # Since a fatal finding, by the name of a job: the node that was told to stop, and when.
        self._stopped: dict[str, tuple[str, float]] = {}
        # By the name of the node: the newest record that is acknowledged.
        self._acknowledged: dict[str, int] = {}
        self.nodes = {
            name: SimulatedNode(settings.place(name), self._note) for name in settings.nodes
        }

    def _note(self, node: str, kind: str, told: dict[str, object]) -> None:
        now_ns = time.monotonic_ns()
        line = {"at_ns": now_ns, "node": node, "kind": kind, **told}
        self._notes.write(json.dumps(line) + "\n")
        if kind == "ack":
            self._acknowledged[node] = int(str(told["through"]))
        elif kind == "obeyed" and told["what"] == "StopGeneration":
            self._stopped.setdefault(str(told["job"]), (node, now_ns / 1e9))

    async def run(self) -> None:
        """Serve commands until standard input ends."""
        commands = self._commands()
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(node.run()) for node in self.nodes.values()]
            running += [tasks.create_task(self._talk(node)) for node in self.nodes.values()]
            running += [tasks.create_task(self._train(node)) for node in self.nodes.values()]
            print(json.dumps("ready"), flush=True)
            while words := (await asyncio.to_thread(sys.stdin.readline)).split():
                answer = commands[words[0]](*words[1:])
                print(json.dumps(await answer if isawaitable(answer) else answer), flush=True)
            for task in running:
                task.cancel()
        for node in self.nodes.values():
            node.close()

    def _commands(self) -> Mapping[str, Callable[..., object]]:
        return {
            "state": self._state,
            "join": self._join,
            "fatal": self._raise_fatal,
            "clear": self._clear,
            "acted": self._acted,
            "talk": self._set_talking,
            "acknowledged_by": self._acknowledged_by,
            "settled": self._settled,
        }

    def _state(self) -> dict[str, object]:
        nodes = self.nodes.values()
        parts = [node.jobs.part for node in nodes if node.jobs.part]
        generations: dict[str, int] = {}
        for part in parts:
            generations[part.name] = max(generations.get(part.name, 0), part.generation)
        return {
            "connected": sum(node.uplink.connected for node in nodes),
            "waiting": sum(node.outbox.counts.waiting for node in nodes),
            "recorded": sum(node.outbox.counts.recorded for node in nodes),
            "running": len({part.name for part in parts if part.runs}),
            "generations": generations,
        }

    def _join(self) -> float:
        for node in self.nodes.values():
            node.join()
        return time.monotonic()

    def _raise_fatal(self, name: str) -> float:
        self._stopped.clear()
        self.nodes[name].find_fatal()
        return time.monotonic()

    def _clear(self, name: str) -> float:
        self.nodes[name].clear_fatal()
        return time.monotonic()

    def _acted(self, name: str) -> float | None:
        """Return when the job of a node was first told to stop, since its fatal finding."""
        found = self._stopped.get(self._settings.nodes[name])
        return found[1] if found else None

    async def _acknowledged_by(self, address: str) -> float:
        """Return when a controller first acknowledged what was recorded on a stream to it."""
        waiting: dict[str, int] = {}
        while True:
            for name, node in self.nodes.items():
                if node.uplink.address != address or not node.uplink.connected:
                    continue
                if name not in waiting:
                    node.find_something()
                    waiting[name] = node.outbox.last_recorded
                elif self._acknowledged.get(name, 0) >= waiting[name]:
                    return time.monotonic()
            await asyncio.sleep(_LOOK_S)

    def _settled(self) -> bool:
        """Return whether all that was recorded is acknowledged, but for progress."""
        return all(node.outbox.is_settled for node in self.nodes.values())

    def _set_talking(self, on: str) -> bool:
        self._talking = on == "1"
        return self._talking

    async def _talk(self, node: SimulatedNode) -> None:
        rate = self._settings.findings_per_s
        while rate:
            await asyncio.sleep(self._chance.expovariate(rate))
            if self._talking:
                node.find_something()

    async def _train(self, node: SimulatedNode) -> None:
        # The nodes of a job are through with a step together.
        phase = random.Random(node.place.job or node.place.name)
        await asyncio.sleep(phase.uniform(0, _STEP_S))
        while True:
            await asyncio.sleep(_STEP_S)
            node.jobs.complete_step()


def main(settings: Path, notes: Path) -> None:
    """Run a fleet."""
    logging.basicConfig(
        filename=notes.with_suffix(".log"),
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    with notes.open("a", buffering=1) as file:
        asyncio.run(Fleet(FleetSettings.read(settings), file).run())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
