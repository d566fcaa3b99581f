"""Training script of the recovery benchmark: torch DDP on gloo, the same under every launcher.

``recovery_rank.py FOLDER KEEPER STEPS`` appends a line for each thing that happens, with the boot
clock, to a file of its own in FOLDER; KEEPER says who keeps the state: ``everstep`` or ``file``.
"""

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# Whoever looks for the reason why a launcher does not come back asks its ranks where they stand.
faulthandler.register(signal.SIGUSR1)


class Journal:
    """Lines of this process: what happened, when; one write each, so that a kill cuts none."""

    def __init__(self, folder: Path) -> None:
        name = f"rank-{os.environ['RANK']}-{os.getpid()}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, what: str, at_ns: int = 0) -> None:
        """Write that something was complete now."""
        at_ns = at_ns or time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        os.write(self._file, f"{what} {at_ns}\n".encode())


def born_ns() -> int:
    """Return when this process was started, from field 22 of /proc/self/stat (proc(5)).

    A warm standby was there before; its script begins now.
    """
    if any(word.endswith("waiting.py") for word in sys.orig_argv):
        return 0
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


journal = Journal(Path(sys.argv[1]))
journal.say("begun", born_ns())
# All imports stand above, as in most scripts: warm standbys can do them ahead.
journal.say("imported")

_WIDTH, _LAYERS, _BATCH = 512, 4, 32

State = Mapping[str, torch.nn.Module | torch.optim.Optimizer]


class Keeper(Protocol):
    """Storage of a rank's state: keeps that of each step, and gives back the newest."""

    def restore(self) -> int | None:
        """Fill the state with what was kept last; return its step, or None."""
        ...

    def keep(self, step: int) -> None:
        """Keep the state after a step."""
        ...


class FileKeeper:
    """State in a file, as is usual with torchrun: rank 0 writes it (to memory) and renames it."""

    def __init__(self, state: State, folder: Path) -> None:
        self._state, self._path = state, folder / "checkpoint.pt"

    def restore(self) -> int | None:
        """Read the file, if it is there."""
        if not self._path.exists():
            return None
        saved = torch.load(self._path)
        for name, part in self._state.items():
            part.load_state_dict(saved[name])
        return int(saved["step"])

    def keep(self, step: int) -> None:
        """Write the file; only rank 0 does."""
        if dist.get_rank() == 0:
            saved = {name: part.state_dict() for name, part in self._state.items()}
            fresh = self._path.with_suffix(".tmp")
            torch.save({**saved, "step": step}, fresh)
            fresh.rename(self._path)


class EverstepKeeper:
    """Snapshots of every rank at every step."""

    def __init__(self, state: State) -> None:
        import everstep

        self._everstep = everstep
        self._snapshots = everstep.snapshots(state)
        journal.say("attached")

    def restore(self) -> int | None:
        """Take what the recovery plan says."""
        return self._snapshots.restore()

    def keep(self, step: int) -> None:
        """Copy the state, and tell that the step is complete."""
        self._snapshots.snapshot(step)
        self._everstep.step(step)


def main() -> None:
    """Train until killed, or for so many steps."""
    folder, keeper_name, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    journal.say("joined")
    model = torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(_LAYERS)))
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    journal.say("wrapped")
    state: State = {"model": model, "optimizer": optimizer}
    keeper = keeper_of(keeper_name, state, folder)
    last = keeper.restore()
    journal.say("restored")
    for step in range(0 if last is None else last + 1, steps):
        optimizer.zero_grad()
        trained(batch(step)).square().mean().backward()
        optimizer.step()
        keeper.keep(step)
        journal.say(f"step {step}")
    dist.destroy_process_group()


def keeper_of(name: str, state: State, folder: Path) -> Keeper:
    """Return who keeps the state."""
    return EverstepKeeper(state) if name == "everstep" else FileKeeper(state, folder)


def batch(step: int) -> torch.Tensor:
    """Return this rank's part of a step's data, which is a function of the two."""
    seed = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    return torch.randn(_BATCH, _WIDTH, generator=seed)


if __name__ == "__main__":
    main()
