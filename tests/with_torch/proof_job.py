"""The training script of more whole-job tests: a gradient scaler, a data loader, async_save."""

import importlib
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import async_save

import everstep
from with_torch.job import BATCH, LENGTH, VOCABULARY, Checkpointed, Kept, Training, main, train


class Scaled(Training):
    """With a torch.amp.GradScaler, whose scale grows every third step and is part of the loss."""

    def __init__(self, run: everstep.Run) -> None:
        super().__init__("ddp", 0.2)
        torch.manual_seed(100 + dist.get_rank())
        self._scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        state = {"model": self.model, "optimizer": self.optimizer, "scaler": self._scaler}
        self._snapshots = run.snapshots(state)

    def restore(self) -> int | None:
        return self._snapshots.restore()

    def step(self, step: int) -> float:
        source = torch.Generator().manual_seed(1000 + step)
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=source)
        return self.learn(tokens[dist.get_rank() :: dist.get_world_size()])

    def learn(self, own: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        scores = self.model(own)
        loss = nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), own.reshape(-1))
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(self.optimizer)
        self._scaler.update()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return float(total) + self._scaler.get_scale()

    def save(self, step: int) -> bool:
        return self._snapshots.snapshot(step)


class Loader(Protocol):
    def __iter__(self) -> Iterator[torch.Tensor]: ...


class Loaded(Scaled):
    """Trains on what torchdata's loader gives, over several epochs of six batches."""

    def __init__(self, run: everstep.Run) -> None:
        super().__init__(run)
        make: Callable[..., Loader] = importlib.import_module(
            "torchdata.stateful_dataloader"
        ).StatefulDataLoader
        rank = dist.get_rank()
        source = torch.Generator().manual_seed(rank)
        data = torch.randint(VOCABULARY, (24, LENGTH), generator=torch.Generator().manual_seed(9))
        # Without workers torchdata does not keep the order of the epoch after the next.
        self._loader = make(data, batch_size=4, shuffle=True, num_workers=1, generator=source)
        self._batches: Iterator[torch.Tensor] | None = None
        state = {"model": self.model, "optimizer": self.optimizer, "scaler": self._scaler}
        self._snapshots = run.snapshots({**state, "loader": self._loader})

    def step(self, step: int) -> float:
        return self.learn(self._next())

    def _next(self) -> torch.Tensor:
        while True:
            if self._batches is None:
                self._batches = iter(self._loader)
            batch = next(self._batches, None)
            if batch is not None:
                return batch
            self._batches = None


class Beside(Checkpointed):
    """Saved by torch's async_save, in its thread, over a process group of its own."""

    def __init__(self, run: everstep.Run) -> None:
        super().__init__("fsdp", run)
        self._group = cast(dist.ProcessGroup, dist.new_group(backend="gloo"))
        self._saving: Future[object] | None = None

    def step(self, step: int) -> float:
        loss = super().step(step)
        self.finish()
        return loss

    def save(self, step: int) -> bool:
        saving = async_save(
            self._state(), storage_writer=self._writer.at(step), process_group=self._group
        )
        self._saving = cast("Future[object]", saving)
        return True

    def finish(self) -> None:
        """Wait for the save that runs beside the step: torch allows one at a time."""
        if self._saving is not None:
            self._saving.result(60)


class Heavy(Training):
    """Saved beside the next step, and large; kills the agent while it is."""

    KILL_STEP = 5

    def __init__(self, run: everstep.Run) -> None:
        super().__init__("ddp", 0.2)
        torch.manual_seed(100 + dist.get_rank())
        self._run = run
        self._ballast = nn.Linear(1024, 24 * 1024, bias=False)
        nn.init.zeros_(self._ballast.weight)
        self._lift = torch.optim.SGD(self._ballast.parameters(), lr=1.0)
        self._ballast.weight.grad = torch.full_like(self._ballast.weight, -1.0)
        state = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        self._snapshots = run.snapshots({**state, "ballast": self._ballast}, overlap=True)

    def restore(self) -> int | None:
        return self._snapshots.restore()

    def step(self, step: int) -> float:
        loss = super().step(step)
        self._lift.step()
        lowest, highest = self._ballast.weight.aminmax()
        assert float(lowest) == float(highest) == step + 1, "torn"
        return loss

    def save(self, step: int) -> bool:
        saved = self._snapshots.snapshot(step)
        agent = Path(os.environ.get("AGENT_PID", ""))
        if step == self.KILL_STEP and agent.is_file():
            time.sleep(float(os.environ["KILL_AFTER_S"]))
            os.kill(int(agent.read_text(encoding="ascii")), signal.SIGKILL)
            agent.unlink()
        return saved


KINDS: dict[str, Callable[[everstep.Run], Kept]] = {
    "scaled": Scaled,
    "loaded": Loaded,
    "beside": Beside,
    "heavy": Heavy,
}


def train_alone(kind: str, steps: int, to: Path) -> None:
    """Train without Everstep, in a world that is there already."""
    place = {"RANK": str(dist.get_rank()), "WORLD_SIZE": str(dist.get_world_size())}
    warnings.simplefilter("ignore")
    run = everstep.init(place)
    train(KINDS[kind](run), run, steps, to, 0.0)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(KINDS)
