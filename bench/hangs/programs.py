"""Programs of ranks that hang: what each rank of a parallel layout calls in a step. Pure.

All ranks of a job draw the same layout from one seed, so their programs fit together.
"""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

LAYOUTS = ("gradient_buckets", "ddp", "tensor_data", "pipeline", "pipeline_async", "experts")
PIPELINES = tuple(name for name in LAYOUTS if name.startswith("pipeline"))
WORLD = "default_pg"
# Elements of a tensor: enough for different shapes, few enough that no time goes into them.
_SIZES = (64, 96, 128, 192, 256, 384)
_COLLECTIVES = frozenset(
    {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
)


@dataclass(frozen=True, slots=True)
class Call:
    """One thing that a rank does in a step: a collective, a send or receive, or computing."""

    name: str
    group: str = ""
    size: int = 0
    # The other end of a send or receive, as a rank of the job.
    peer: int = -1
    # Its end is waited for by a later "wait".
    is_async: bool = False
    seconds: float = 0.0

    @property
    def is_collective(self) -> bool:
        """Return whether all ranks of a group take part."""
        return self.name in _COLLECTIVES


# Of each rank in the file "progress" of a job: the step it is in, and the call; the last record is
# the number of the phase that all are in, and 0.
PROGRESS = struct.Struct("=qq")
# What a file that a rank saves ends with.
SAVED = ".saved"


def phase_name(number: int) -> str:
    """Return the name of a phase of a job; the first has none."""
    return f"part-{number}" if number else ""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong in one rank."""

    number: int
    kind: str
    rank: int
    # From 0 to 1: before which call of the step, or in which of those that can have the fault.
    place: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A rank to be started."""

    folder: str
    layout: str
    ranks: int
    seed: int
    rank: int
    # Whether it ends when others do not answer any more, as most programs do.
    exits: bool
    # Where its page is, as its launcher tells it.
    page: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Process groups in the order in which all ranks make them, and the step of each rank."""

    name: str
    # By description, the ranks of each group; a rank is in one of a description at most.
    groups: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]
    steps: tuple[tuple[Call, ...], ...]

    def group_of(self, description: str, rank: int) -> tuple[int, ...]:
        """Return the members of a rank's group."""
        found = dict(self.groups).get(description, ())
        return next((members for members in found if rank in members), ())


def layout(name: str, ranks: int, seed: int) -> Layout:
    """Return a layout of 4 or 8 ranks; the seed decides sizes, numbers of layers and order."""
    draw = random.Random(f"{name} {ranks} {seed}")
    made = {
        "gradient_buckets": _gradient_buckets,
        "ddp": _ddp,
        "tensor_data": _tensor_data,
        "pipeline": _pipeline,
        "pipeline_async": _pipeline_async,
        "experts": _experts,
    }[name](ranks, draw)
    # A step of 50 to 200 ms; the parts of it that compute share it.
    seconds = draw.uniform(0.05, 0.2)
    return replace(made, steps=tuple(_paced(step, seconds) for step in made.steps))


def _paced(step: Sequence[Call], seconds: float) -> tuple[Call, ...]:
    parts = sum(call.name == "compute" for call in step)
    return tuple(
        replace(call, seconds=seconds / parts) if call.name == "compute" else call for call in step
    )


_COMPUTE = Call("compute")
_WAIT = Call("wait")


def _gradient_buckets(ranks: int, draw: random.Random) -> Layout:
    """Data parallel with gradients in buckets that are reduced beside the backward pass."""
    buckets = [draw.choice(_SIZES) for _ in range(draw.randrange(3, 7))]
    step = [_COMPUTE]
    for size in buckets:
        step += [_COMPUTE, Call("all_reduce", WORLD, size, is_async=True)]
    step.append(_WAIT)
    if draw.random() < 0.5:
        step.append(Call("all_reduce", WORLD, 1))
    return Layout("gradient_buckets", (), (tuple(step),) * ranks)


def _ddp(ranks: int, draw: random.Random) -> Layout:
    """A module in torch's DistributedDataParallel, which reduces within `backward`."""
    step = [_COMPUTE, Call("ddp", WORLD, draw.randrange(2, 6))]
    if draw.random() < 0.5:
        step.append(Call("all_reduce", WORLD, 1))
    return Layout("ddp", (), (tuple(step),) * ranks)


def _tensor_data(ranks: int, draw: random.Random) -> Layout:
    """Tensor groups of neighbours, data groups across them."""
    width = 2 if ranks == 4 else draw.choice((2, 4))
    tensor = tuple(tuple(range(first, first + width)) for first in range(0, ranks, width))
    data = tuple(tuple(range(lane, ranks, width)) for lane in range(width))
    layers = draw.randrange(2, 5)
    size = draw.choice(_SIZES)
    step: list[Call] = []
    for _ in range(2 * layers):  # forward and backward
        step += [_COMPUTE, Call("all_reduce", "TENSOR_MODEL_PARALLEL_GROUP", size)]
    shard = draw.choice(_SIZES)
    step += [
        Call("reduce_scatter", "DATA_PARALLEL_GROUP", shard),
        _COMPUTE,
        Call("all_gather", "DATA_PARALLEL_GROUP", shard),
    ]
    if draw.random() < 0.7:
        step.insert(-2, Call("all_reduce", WORLD, 1))  # the norm of the gradients
    groups = (("TENSOR_MODEL_PARALLEL_GROUP", tensor), ("DATA_PARALLEL_GROUP", data))
    return Layout("tensor_data", groups, (tuple(step),) * ranks)


def _pipeline(ranks: int, draw: random.Random) -> Layout:
    """Stages that send activations on and gradients back, replicas beside them."""
    stages = draw.choice((2, 4)) if ranks == 4 else draw.choice((2, 4, 8))
    replicas = ranks // stages
    pipes = tuple(tuple(range(lane, ranks, replicas)) for lane in range(replicas))
    data = tuple(tuple(range(stage * replicas, (stage + 1) * replicas)) for stage in range(stages))
    batches, size = draw.randrange(2, 5), draw.choice(_SIZES)
    end: list[Call] = []
    if replicas > 1:
        end.append(Call("all_reduce", "DATA_PARALLEL_GROUP", draw.choice(_SIZES)))
    end.append(Call("all_reduce", WORLD, 1))
    steps = []
    for rank in range(ranks):
        stage = rank // replicas
        step: list[Call] = []
        for forward in (True, False):
            before = rank - replicas if forward else rank + replicas
            after = rank + replicas if forward else rank - replicas
            first = stage == (0 if forward else stages - 1)
            last = stage == (stages - 1 if forward else 0)
            for _ in range(batches):
                if not first:
                    step.append(Call("recv", "PIPELINE_MODEL_PARALLEL_GROUP", size, before))
                step.append(_COMPUTE)
                if not last:
                    step.append(Call("send", "PIPELINE_MODEL_PARALLEL_GROUP", size, after))
        steps.append((*step, *end))
    groups = (("PIPELINE_MODEL_PARALLEL_GROUP", pipes), ("DATA_PARALLEL_GROUP", data))
    return Layout("pipeline", groups, tuple(steps))


def _pipeline_async(ranks: int, draw: random.Random) -> Layout:
    """The same with isend and irecv, whose ends the program waits for itself."""
    plain = _pipeline(ranks, draw)
    steps = []
    for step in plain.steps:
        calls = [replace(one, is_async=True) if one.peer >= 0 else one for one in step]
        first = next(place for place, one in enumerate(calls) if one.is_collective)
        steps.append((*calls[:first], _WAIT, *calls[first:]))
    return replace(plain, name="pipeline_async", steps=tuple(steps))


def _experts(ranks: int, draw: random.Random) -> Layout:
    """Experts: all-to-all within groups before and after each layer, data groups across them."""
    width = draw.choice((2, 4))
    expert = tuple(tuple(range(first, first + width)) for first in range(0, ranks, width))
    data = tuple(tuple(range(lane, ranks, width)) for lane in range(width))
    size = draw.choice(_SIZES)
    step: list[Call] = []
    for _ in range(draw.randrange(2, 4)):
        step += [
            Call("all_to_all", "EXPERT_MODEL_PARALLEL_GROUP", size),
            _COMPUTE,
            Call("all_to_all", "EXPERT_MODEL_PARALLEL_GROUP", size),
            _COMPUTE,
        ]
    if ranks > width:
        step.append(Call("all_reduce", "EXPERT_DATA_PARALLEL_GROUP", draw.choice(_SIZES)))
    step += [_COMPUTE, Call("all_reduce", WORLD, draw.choice(_SIZES))]
    if draw.random() < 0.3:
        step.append(Call("broadcast", WORLD, 1))
    groups = (("EXPERT_MODEL_PARALLEL_GROUP", expert), ("EXPERT_DATA_PARALLEL_GROUP", data))
    return Layout("experts", groups, (tuple(step),) * ranks)


# --- faults of the program -----------------------------------------------------------------------


def changed(step: Sequence[Call], kind: str, place: float) -> tuple[Call, ...] | None:
    """Return a step as a rank with a fault in its program does it once; None where it has none.

    ``place``, from 0 to 1, says which of the calls that can have the fault has it.
    """
    fits = [number for number, call in enumerate(step) if _can_have(step, number, kind)]
    if not fits:
        return None
    at = fits[min(int(place * len(fits)), len(fits) - 1)]
    found = list(step)
    if kind in ("skip", "recv"):
        del found[at]
    elif kind == "shape":
        found[at] = replace(found[at], size=2 * found[at].size)
    elif kind == "reorder":
        other = _next_other(step, at)
        assert other is not None
        found[at], found[other] = found[other], found[at]
    return tuple(found)


def _can_have(step: Sequence[Call], number: int, kind: str) -> bool:
    call = step[number]
    if kind == "recv":
        return call.name == "recv"
    if kind == "skip":
        return call.is_collective or call.name == "ddp"
    if kind == "shape":
        return call.is_collective and call.name not in ("barrier", "all_to_all")
    return call.is_collective and _next_other(step, number) is not None


def _next_other(step: Sequence[Call], number: int) -> int | None:
    """Return the next collective, if it is another one than this."""
    for place in range(number + 1, len(step)):
        if step[place].is_collective:
            same = replace(step[place], is_async=step[number].is_async) == step[number]
            return None if same else place
        if step[place].name not in ("compute", "wait"):
            return None
    return None
