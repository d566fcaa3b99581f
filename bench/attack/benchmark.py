"""Attack benchmark: one user's snapshots while a process of another user floods the agent.

The whole product: a controller, agents and `everstep run`, as shipped, and the attacker as the user
nobody. Each flood is compared with the same process burning as much CPU, and not speaking to
Everstep. Windows take turns: a flood, nothing, its burn, nothing. After each flood the job's speed
is compared with that before it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from attack.flood import KINDS, TWO_NODES, Target
from harness.daemons import agent_command, controller_command, secret_file
from harness.processes import (
    BENCH,
    START_PATIENCE_S,
    free_port,
    module_command,
    process_cpu_s,
    running,
    wait_for_port,
)
from harness.session import Benchmark, Part
from harness.table import Row, row
from harness.waits import until_there
from vault.nodes import RANK_PATH

_NOBODY = 65534
_STATE_BYTES, _STEP_S = 4 << 20, 0.02
_RATIO_MAX = 1.5
# What a flood has done before its window begins is not measured, nor what the one before left.
_SETTLE_S = 1.0
# Of the speed before a flood, what the job has to have in the seconds after it.
_SPEED_AFTER = 0.95
_AFTER_S = 10.0
# The flood of one member of a job on two nodes.
_TWO_NODE_FLOOD_S = 8.0


@dataclass(frozen=True, slots=True)
class Window:
    """What the job's rank did in one window, and what the attacker and the agent used of a core."""

    took_s: tuple[float, ...]
    unsaved: int
    steps: int
    seconds: float
    attacker_share: float
    agent_share: float

    @property
    def speed(self) -> float:
        """Return the steps in a second."""
        return self.steps / self.seconds


class Job:
    """Rank that trains, by what it writes, beside the agent that serves it."""

    def __init__(self, told: Path, agent_pid: int, target: Target) -> None:
        self._told = told
        self._agent_pid = agent_pid
        self.target = target

    def window(
        self, kind: str, seconds: float, share: float = 1.0, settle_s: float = _SETTLE_S
    ) -> Window:
        """Return what happens while the attacker floods ("": there is none)."""
        with ExitStack() as stack:
            pid = stack.enter_context(_attacker(kind, replace(self.target, share=share)))
            time.sleep(settle_s)
            began, cpu = time.monotonic(), self._cpu(pid)
            time.sleep(seconds)
            ended, after = time.monotonic(), self._cpu(pid)
        used = [(last - first) / (ended - began) for first, last in zip(cpu, after, strict=True)]
        lines = [line for line in self._lines() if line[1] <= ended]
        before = [line for line in lines if line[1] < began]
        inside = lines[len(before) :]
        unsaved = (lines[-1][3] - before[-1][3]) if inside else 0
        took_s = tuple(line[2] for line in inside)
        return Window(took_s, int(unsaved), len(inside), ended - began, *used)

    def speed_after(self) -> float:
        """Return the steps in a second from now on, where somebody has just ended."""
        return self.window("", _AFTER_S, settle_s=0.0).speed

    def _cpu(self, attacker: int) -> tuple[float, float]:
        return process_cpu_s(attacker) if attacker else 0.0, process_cpu_s(self._agent_pid)

    def _lines(self) -> list[list[float]]:
        whole = self._told.read_text(encoding="ascii").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]


class _attacker:  # noqa: N801 - used as a context
    """Attacker process of another user; its pid, 0 for none."""

    def __init__(self, kind: str, target: Target) -> None:
        self._kind, self._target = kind, target
        self._stack = ExitStack()

    def __enter__(self) -> int:
        if not self._kind:
            return 0
        command = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
        command += map(str, module_command("attack.flood", self._kind))
        process = self._stack.enter_context(running([*command, json.dumps(asdict(self._target))]))
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit(f"the attacker did not begin: {self._kind}")
        return process.pid

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def idle(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the row for no attacker."""
    with ExitStack() as stack:
        job = _started(stack)
        yield _times(
            "no attacker", [job.window("", options.seconds) for _ in range(options.repeats)]
        )


def flooded(kind: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of one flood, of a job of its own."""
    with ExitStack() as stack:
        two_nodes = kind == TWO_NODES
        job = _started(stack, nodes=2 if two_nodes else 1)
        seconds = _TWO_NODE_FLOOD_S if two_nodes else options.seconds
        yield from _measure_flood(job, kind, options.repeats, seconds)


def _measure_flood(job: Job, kind: str, repeats: int, seconds: float) -> Iterator[Row]:
    floods, burns = [], []
    speeds = [job.speed_after()]
    for _ in range(repeats):
        floods.append(job.window(kind, seconds))
        speeds.append(job.speed_after())
        burns.append(job.window("burn", seconds, min(1.0, floods[-1].attacker_share)))
        speeds.append(job.speed_after())
    beside = _times(f"{kind}: beside as much CPU", burns)
    yield beside
    yield _times(f"{kind}: beside the flood", floods, beside, _RATIO_MAX * beside.value)
    unsaved = [one.unsaved / max(1, one.steps) for one in floods]
    yield row(f"{kind}: share of steps unsaved", unsaved, "of 1", target=0.0)
    yield from _speeds(kind, speeds)
    yield row(f"{kind}: the agent's share of a core", [w.agent_share for w in floods], "")
    yield row(f"{kind}: the attacker's", [w.attacker_share for w in floods], "")


def _speeds(kind: str, speeds: Sequence[float]) -> Iterator[Row]:
    """Yield how the speed before compares with that after: a flood, as much CPU, in turn."""
    turns = [before / max(after, 1e-9) for before, after in pairwise(speeds)]
    burns = row(f"{kind}: speed before by {_AFTER_S:g} s after as much CPU", turns[1::2], "")
    yield burns
    name = f"{kind}: speed before by {_AFTER_S:g} s after the flood"
    yield row(name, turns[::2], "", burns, target=1 / _SPEED_AFTER)


def _times(
    name: str, windows: Sequence[Window], against: Row | None = None, target: float | None = None
) -> Row:
    medians = [statistics.median(one.took_s) * 1e3 for one in windows if one.took_s]
    if not medians:
        raise SystemExit(f"{name}: no step in a whole window")
    return row(name, medians, "ms", against, target)


def _started(stack: ExitStack, nodes: int = 1) -> Job:
    """Return a job that trains, a rank on each node; the last node is the one that is flooded."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everstep-bench-")))
    # Other users reach the agent's sockets, as they do in /run.
    folder.chmod(0o755)
    port, meeting = free_port(), free_port()
    controller = stack.enter_context(running(controller_command(folder, port)))
    wait_for_port(port, controller)
    told = folder / "steps"
    words = ["--bytes", str(_STATE_BYTES), "--step-seconds", str(_STEP_S), "--losses", str(told)]
    words += ["--meet", str(meeting)] if nodes > 1 else []
    agents = [_agent(stack, folder / f"node-{number}", port) for number in range(nodes)]
    for _, target in agents:
        stack.enter_context(_launcher(Path(target.socket("agent.sock")), nodes, words))
    _until_trains(told)
    flooded, target = agents[-1]
    return Job(told, flooded, target)


def _agent(stack: ExitStack, place: Path, controller: int) -> tuple[int, Target]:
    """Start an agent; return its process and what can be flooded of it."""
    place.mkdir(mode=0o755)
    metrics, liveness, bulk = (free_port() for _ in range(3))
    command = agent_command(
        *(place, controller, metrics),
        node=place.name,
        ports=(liveness, bulk),
        secret=secret_file(place.parent),
    )
    agent = stack.enter_context(running(command))
    target = Target(str(place / "run"), bulk, liveness, metrics)
    until_there(Path(target.socket("agent.sock")))
    return agent.pid, target


def _launcher(
    socket: Path, nodes: int, words: Sequence[str]
) -> AbstractContextManager["subprocess.Popen[str]"]:
    launcher = Path(sys.executable).with_name("everstep")
    job: list[str | Path] = [launcher, "run", "--job", "train", "--socket", socket]
    more = ["--nnodes", str(nodes), "--snapshot-every", "1", "--", sys.executable]
    command = [*job, *more, BENCH / "harness/training_rank.py", *words]
    return running(command, os.environ | {"PYTHONPATH": RANK_PATH}, may_end=nodes > 1)


def _until_trains(told: Path, patience_s: float = START_PATIENCE_S) -> None:
    ends = time.monotonic() + patience_s
    while time.monotonic() < ends:
        if told.exists() and told.read_text(encoding="ascii").count("\n") > 50:
            return
        time.sleep(0.1)
    raise SystemExit("the job does not train")


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("no attacker", 60.0, idle),
        *(Part(kind, 330.0, partial(flooded, kind)) for kind in KINDS if kind != "burn"),
    ],
    repeats=5,
    seconds=10.0,
    quick={"repeats": 1, "seconds": 3.0},
)
