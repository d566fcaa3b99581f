"""Training under DDP that begins anew at some steps, from the state of the step before."""

import copy
import hashlib
from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from everstep.integrations.ddp import rebuild_buckets

_IN, _OUT, _BATCH, _MICRO_BATCHES = 64, 10, 8, 2


def _small() -> nn.Module:
    return nn.Sequential(nn.Linear(_IN, 128), nn.GELU(), nn.Linear(128, _OUT))


def _noisy() -> nn.Module:
    layers = (nn.Linear(_IN, 128), nn.BatchNorm1d(128), nn.Dropout(0.1), nn.Linear(128, _OUT))
    return nn.Sequential(*layers)


def _deep() -> nn.Module:
    layers = [layer for _ in range(8) for layer in (nn.Linear(_IN, _IN), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(_IN, _OUT))


class _Crossed(nn.Module):
    """Registers its layers in another order than it uses them, and one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.second = nn.Linear(_IN, _OUT), nn.Linear(_IN, _IN)
        self.first, self.third = nn.Linear(_IN, _IN), nn.Linear(_IN, _IN)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.second(self.first(images).relu()) + self.first(images)
        out: torch.Tensor = self.out(self.third(hidden))
        return out


# A net, and what DDP is told: several buckets, where the limit of one is some kilobytes.
NETS = {
    "small": (_small, {}),
    "noisy": (_noisy, {}),
    "deep": (_deep, {"bucket_cap_mb": 0.05}),
    "crossed": (_Crossed, {"bucket_cap_mb": 0.03}),
    "views": (_deep, {"bucket_cap_mb": 0.05, "gradient_as_bucket_view": True}),
    "static": (_deep, {"bucket_cap_mb": 0.05, "static_graph": True}),
    "unused": (_small, {"find_unused_parameters": True}),
}


def _pass(model: DistributedDataParallel, step: int, micro_batches: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(100 * step + dist.get_rank())
    total = torch.zeros(())
    for number in range(micro_batches):
        images = torch.randn(_BATCH, _IN, generator=source)
        labels = torch.randint(_OUT, (_BATCH,), generator=source)
        with nullcontext() if number == micro_batches - 1 else model.no_sync():
            loss = cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total


def traces_of_steps(net: str, steps: int, cuts: Sequence[int], rebuilt: bool) -> list[str]:
    """Return for each step the sum of all ranks' losses and a digest of the parameters after it.

    DDP is made anew before some of them. The loss alone hides a last bit of a gradient for steps.
    """
    found: list[str] = []
    saved = None
    for first, end in zip((0, *cuts), (*cuts, steps), strict=True):
        torch.manual_seed(7)
        make, options = NETS[net]
        model = DistributedDataParallel(make(), **options)  # type: ignore[arg-type]
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
        torch.manual_seed(dist.get_rank())
        if rebuilt:
            rebuild_buckets(model, lambda made=model: _pass(made, 0, 1))  # type: ignore[misc]
        if saved is not None:
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
            torch.set_rng_state(saved[2])
        for step in range(first, end):
            optimizer.zero_grad()
            total = _pass(model, step, _MICRO_BATCHES)
            optimizer.step()
            dist.all_reduce(total)
            found.append(f"{float(total).hex()} {_digest(model)}")
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), torch.get_rng_state()))
    return found


def _digest(model: nn.Module) -> str:
    parts = (one.detach().numpy().tobytes() for one in model.parameters())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def cut_and_whole(nets: Sequence[str], steps: int, cuts: Sequence[int], rebuilt: bool) -> list[int]:
    """Return for each net how many steps differ between a run with cuts and one without."""
    differing = []
    for net in nets:
        cut = traces_of_steps(net, steps, cuts, rebuilt)
        whole = traces_of_steps(net, steps, (), rebuilt)
        differing.append(sum(one != other for one, other in zip(cut, whole, strict=True)))
    return differing


def traces() -> tuple[bool, bool, bool]:
    """Return whether a rebuild left buffers, random state and gradients as they were."""
    torch.manual_seed(7)
    model = DistributedDataParallel(_noisy())
    buffers = [one.clone() for one in model.buffers()]
    drawn = torch.get_rng_state()
    rebuild_buckets(model, lambda: _pass(model, 0, 1))
    return (
        all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True)),
        torch.equal(drawn, torch.get_rng_state()),
        all(one.grad is None for one in model.parameters()),
    )
