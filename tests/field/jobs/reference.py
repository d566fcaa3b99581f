"""Reference runs: the same script with the same seed, without Everstep's launcher and any fault."""

import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from field.jobs.shapes import Shape

_SCRIPTS = Path("opt/scripts")
_PATIENCE_S = 300.0
_PORT = 29400


@dataclass(frozen=True, slots=True)
class Reference:
    """What a script comes to by itself."""

    losses: dict[int, str]
    # By step, the digest of each shard of its state.
    digests: dict[int, tuple[str, ...]]
    code: int


@dataclass(slots=True)
class References:
    """Computes each once, and one at a time: they take the processors from the fleet."""

    root: Path
    folder: Path
    _known: dict[tuple[str, int, int], Reference] = field(default_factory=dict)
    _alive: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def of(self, shape: Shape, seed: int, steps: int) -> Reference:
        """Return the reference of a job."""
        # Snapshots change no loss, so all shapes of one script have one.
        key = (shape.script + " ".join(shape.arguments) * (not shape.proves_restores), seed, steps)
        with self._turn:
            if key not in self._known:
                self._known[key] = self._run(shape, seed, steps)
            return self._known[key]

    def stop(self) -> None:
        """End the run that goes on."""
        for rank in list(self._alive):
            rank.kill()

    def _run(self, shape: Shape, seed: int, steps: int) -> Reference:
        out = self.folder / f"{shape.name}-{seed}-{steps}"
        out.mkdir(parents=True)
        line = [*words(shape, out, seed, steps), "--step-seconds-min", "0"]
        if shape.proves_restores:
            line = [one for one in line if one != "--overlap"] + ["--digests", str(out / "digests")]
        line = _without_pauses(line)
        size = 1 if shape.proves_restores else shape.nodes * shape.ranks_per_node
        ranks = [self._start(line, rank, size, out) for rank in range(size)]
        self._alive = ranks
        codes = []
        for rank in ranks:
            try:
                codes.append(rank.wait(timeout=_PATIENCE_S))
            except subprocess.TimeoutExpired:
                rank.kill()
                codes.append(rank.wait())
        self._alive = []
        return Reference(
            read_losses(out / "losses"),
            read_digests(out / "digests"),
            next((code for code in codes if code), 0),
        )

    def _packages(self) -> Path:
        """Return what the machines' users have: the wheel, and what scripts need beside it."""
        (packages,) = (self.root / "opt/training/lib").glob("python3*/site-packages")
        return packages

    def _start(self, line: list[str], rank: int, size: int, out: Path) -> subprocess.Popen[bytes]:
        environ = {
            **{"PATH": os.environ["PATH"], "HOME": str(out), "OMP_NUM_THREADS": "1"},
            **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)},
            **{"LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"},
            **{"MASTER_PORT": str(_PORT), "GROUP_WORLD_SIZE": "1"},
            "PYTHONPATH": str(self._packages()),
        }
        if size == 1:
            own = ("PATH", "HOME", "OMP_NUM_THREADS", "PYTHONPATH")
            environ = {name: environ[name] for name in own}
        with (out / f"{rank}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, str(self.root / _SCRIPTS / line[0]), *line[1:]],
                env=environ,
                stdout=log,
                stderr=log,
                cwd=out,
            )


def words(shape: Shape, out: Path, seed: int, steps: int) -> list[str]:
    """Return a script and its options."""
    own = [one.format(out=out, user="") for one in shape.arguments]
    fixed = ["--steps", str(steps), "--seed", str(seed), "--losses", f"{out}/losses"]
    return [shape.script, *own, *fixed]


def _without_pauses(line: list[str]) -> list[str]:
    """Return a line whose evaluations, loads, saves and reads take no time: they change no loss."""
    found = list(line)
    if "--samples" in found:
        at = found.index("--samples")
        del found[at : at + 2]
    for option in ("--evaluate-seconds", "--load-seconds", "--save-seconds"):
        if option in found:
            found[found.index(option) + 1] = "0"
    return found


def read_losses(path: Path) -> dict[int, str]:
    """Return by step the loss that was written last."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    pairs = [line.split("\t") for line in lines]
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2}


def read_digests(path: Path) -> dict[int, tuple[str, ...]]:
    """Return by step the digests of all shards."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {
        int(step): tuple(rest.split(",")) for step, _, rest in (x.partition(" ") for x in lines)
    }
