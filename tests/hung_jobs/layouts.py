"""Training steps as they are called: Megatron (TP, PP, DP, EP, CP), FSDP2 and HSDP, DDP.

Each rank gets the operations that its process groups see, in the order of the program: 1F1B
pipelines with single or coalesced sends and receives, gathers and reductions that run beside the
computation, all-to-all of experts whose sizes the CPU waits for, norms that it reads.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Members = tuple[int, ...]
# Description and members.
Group = tuple[str, Members]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a program."""

    group: Group
    name: str
    size: int
    # The other end of a send or recv.
    peer: int | None = None
    # Whether the computation goes on beside it until a `Wait`, and whether the CPU waits for it.
    beside: bool = False
    read: bool = False
    # Sends and receives with one number are one coalesced batch; 0: not coalesced.
    batch: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """The computation waits for everything that ran beside it."""


Item = Op | Wait
Program = list[Item]


@dataclass(slots=True)
class Layout:
    """The programs of all ranks, and the groups that each is in."""

    name: str
    programs: list[Program]
    groups: list[Group] = field(default_factory=list)
    batches: int = 0

    @property
    def everybody(self) -> Group:
        """Return the group of all ranks."""
        return ("default_pg", tuple(range(len(self.programs))))

    def call(self, group: Group, name: str, size: int, **how: bool) -> None:
        """Add one collective to all members of a group."""
        if len(group[1]) > 1:
            for rank in group[1]:
                self.programs[rank].append(Op(group, name, size, **how))

    def wait(self) -> None:
        """All ranks wait for what runs beside their computation."""
        for program in self.programs:
            program.append(Wait())


def drawn_layout(draw: random.Random, kind: str = "") -> Layout:
    """Return a random layout: "megatron", "fsdp" or "ddp"."""
    kind = kind or draw.choice(("megatron", "megatron", "fsdp", "ddp"))
    return {"megatron": _megatron, "fsdp": _fsdp, "ddp": _ddp}[kind](draw)


# --- Megatron ------------------------------------------------------------------------------------

# Tensor, pipeline, context and data parallel sizes, and the ranks over which experts are spread.
_SIZES = (
    (4, 2, 1, 2, 8),
    (2, 4, 1, 2, 4),
    (2, 2, 2, 2, 2),
    (1, 4, 1, 4, 4),
    (4, 4, 1, 2, 8),
    (2, 2, 1, 4, 1),
    (8, 1, 1, 4, 8),
    (2, 8, 1, 2, 2),
    (4, 2, 2, 4, 8),
    (4, 4, 1, 8, 16),
)


@dataclass(frozen=True, slots=True)
class _Plan:
    tensor: int
    pipeline: int
    context: int
    data: int
    experts: int
    microbatches: int
    coalesced: bool

    @property
    def stage(self) -> int:
        return self.tensor * self.context * self.data


def _megatron(draw: random.Random) -> Layout:
    tensor, pipeline, context, data, experts = draw.choice(_SIZES[:-1] * 3 + _SIZES[-1:])
    plan = _Plan(
        tensor, pipeline, context, data, experts, pipeline + draw.randrange(3), draw.random() < 0.5
    )
    size = plan.stage * pipeline
    layout = Layout(f"megatron {tensor}x{pipeline}x{context}x{data}", [[] for _ in range(size)])
    layout.call(layout.everybody, "barrier", 1, read=True)
    for step in range(draw.randrange(3, 5)):
        _pipeline_step(layout, plan)
        _finish_step(layout, plan, step)
    return layout


def _pipeline_step(layout: Layout, plan: _Plan) -> None:
    for rank in range(len(layout.programs)):
        stage = rank // plan.stage
        warm = min(plan.pipeline - stage - 1, plan.microbatches)
        steady = plan.microbatches - warm
        for _ in range(warm):
            _exchange(layout, plan, rank, ("recv", -1))
            _forward(layout, plan, rank)
            _exchange(layout, plan, rank, ("send", 1))
        if steady:
            _exchange(layout, plan, rank, ("recv", -1))
        for one in range(steady):
            _forward(layout, plan, rank)
            _exchange(layout, plan, rank, ("send", 1), ("recv", 1))
            _backward(layout, plan, rank, last=not warm and one == steady - 1)
            more = [("recv", -1)] if one < steady - 1 else []
            _exchange(layout, plan, rank, ("send", -1), *more)
        for one in range(warm):
            _exchange(layout, plan, rank, ("recv", 1))
            _backward(layout, plan, rank, last=one == warm - 1)
            _exchange(layout, plan, rank, ("send", -1))


def _exchange(layout: Layout, plan: _Plan, rank: int, *parts: tuple[str, int]) -> None:
    stage = rank // plan.stage
    known = [(name, to) for name, to in parts if 0 <= stage + to < plan.pipeline]
    if not known:
        return
    pipe = (
        "PIPELINE_MODEL_PARALLEL_GROUP",
        tuple(range(rank % plan.stage, len(layout.programs), plan.stage)),
    )
    layout.batches += 1
    for name, to in known:
        # Forward: to the next stage, or from the one before.
        forward = (name == "send") == (to > 0)
        group = pipe if forward or plan.coalesced else layout.everybody
        batch = layout.batches if plan.coalesced else 0
        peer = rank + to * plan.stage
        layout.programs[rank].append(Op(group, name, 4096, peer, beside=True, batch=batch))
    layout.programs[rank].append(Wait())


def _places(plan: _Plan, rank: int) -> tuple[Group, Group, Group]:
    """Return the tensor, context and expert groups of a rank."""
    first = rank // plan.tensor * plan.tensor
    tensor = ("TENSOR_MODEL_PARALLEL_GROUP", tuple(range(first, first + plan.tensor)))
    block = plan.tensor * plan.context
    start = rank // block * block + rank % plan.tensor
    context = ("CONTEXT_PARALLEL_GROUP", tuple(range(start, start + block, plan.tensor)))
    first = rank // plan.experts * plan.experts
    experts = ("EXPERT_MODEL_PARALLEL_GROUP", tuple(range(first, first + plan.experts)))
    return tensor, context, experts


def _add(layout: Layout, rank: int, group: Group, name: str, size: int, **how: bool) -> None:
    if len(group[1]) > 1:
        layout.programs[rank].append(Op(group, name, size, **how))


def _forward(layout: Layout, plan: _Plan, rank: int) -> None:
    tensor, context, experts = _places(plan, rank)
    _add(layout, rank, tensor, "broadcast", 8192)
    _add(layout, rank, tensor, "broadcast", 8192)
    for _ in range(2):
        _add(layout, rank, tensor, "_all_gather_base", 2048)
        _add(layout, rank, context, "all_to_all", 512)
        _add(layout, rank, tensor, "_reduce_scatter_base", 8192)
        # How many tokens each expert gets is read by the CPU.
        _add(layout, rank, experts, "_all_gather_base", 16, read=True)
        _add(layout, rank, experts, "all_to_all", 2048 + rank)
        _add(layout, rank, experts, "all_to_all", 1951 + rank)


def _backward(layout: Layout, plan: _Plan, rank: int, *, last: bool) -> None:
    tensor, context, experts = _places(plan, rank)
    for layer in range(2):
        _add(layout, rank, experts, "all_to_all", 1951 + rank)
        _add(layout, rank, tensor, "_all_gather_base", 2048)
        _add(layout, rank, tensor, "_reduce_scatter_base", 8192, beside=True)
        _add(layout, rank, context, "all_to_all", 512)
        layout.programs[rank].append(Wait())
        if last:
            size = 100_000 + layer
            _add(layout, rank, _data_group(plan, rank), "_reduce_scatter_base", size, beside=True)


def _data_group(plan: _Plan, rank: int) -> Group:
    first = rank // plan.stage * plan.stage
    members = range(first + rank % plan.tensor, first + plan.stage, plan.tensor)
    return ("DATA_PARALLEL_GROUP_WITH_CP", tuple(members))


def _finish_step(layout: Layout, plan: _Plan, step: int) -> None:
    layout.wait()
    size = len(layout.programs)
    for lane in range(plan.stage):
        pipe = tuple(range(lane, size, plan.stage))
        layout.call(("EMBEDDING_GROUP", tuple(sorted({pipe[0], pipe[-1]}))), "all_reduce", 65_536)
    for place in range(size // plan.tensor):
        first = place * plan.tensor
        layout.call(_places(plan, first)[0], "all_reduce", 777)
    model = sorted({_model_group(plan, rank, size) for rank in range(size)})
    for group in model:
        layout.call(group, "all_reduce", 1)
        layout.call(group, "all_reduce", 1, read=True)
    for group in sorted({_data_group(plan, rank) for rank in range(size)}):
        layout.call(group, "_all_gather_base", 100_000, beside=True)
        layout.call(group, "_all_gather_base", 100_001, beside=True)
    layout.wait()
    if step % 2:
        layout.call(layout.everybody, "all_reduce", 3, read=True)


def _model_group(plan: _Plan, rank: int, size: int) -> Group:
    lane = rank % plan.stage // plan.tensor * plan.tensor
    members = [p + lane + t for p in range(0, size, plan.stage) for t in range(plan.tensor)]
    return ("MODEL_PARALLEL_GROUP", tuple(members))


# --- FSDP2, HSDP, DDP ----------------------------------------------------------------------------


def _fsdp(draw: random.Random) -> Layout:
    shards, replicas = draw.choice(((8, 1), (16, 1), (8, 2), (4, 4), (32, 1), (8, 4)))
    layers = draw.randrange(3, 7)
    size = shards * replicas
    layout = Layout(f"fsdp {shards}x{replicas}", [[] for _ in range(size)])
    shard = [("mesh_shard", tuple(range(r * shards, (r + 1) * shards))) for r in range(replicas)]
    copies = [("mesh_replicate", tuple(range(s, size, shards))) for s in range(shards)]
    for step in range(draw.randrange(3, 6)):
        for layer in (*range(layers), *reversed(range(layers))):
            _each(layout, shard, "_all_gather_base", 1000 + layer, beside=layer % 2 == 0)
            layout.wait()
        for layer in reversed(range(layers)):
            _each(layout, shard, "_reduce_scatter_base", 1000 + layer, beside=True)
            _each(layout, copies, "all_reduce", 1000 + layer, beside=True)
        layout.wait()
        _each(layout, shard, "all_reduce", 1, read=True)
        if step % 2:
            layout.call(layout.everybody, "all_reduce", 2, read=True)
    return layout


def _each(
    layout: Layout,
    groups: Iterable[Group],
    name: str,
    size: int,
    *,
    beside: bool = False,
    read: bool = False,
) -> None:
    for group in groups:
        layout.call(group, name, size, beside=beside, read=read)


def _ddp(draw: random.Random) -> Layout:
    size = draw.choice((8, 16, 32, 64))
    buckets = draw.randrange(2, 6)
    layout = Layout(f"ddp {size}", [[] for _ in range(size)])
    norms = ("batch_norm", tuple(range(size)))
    synced = draw.random() < 0.5
    for step in range(draw.randrange(4, 9)):
        layout.call(layout.everybody, "broadcast", 64)
        if synced:
            for _ in range(3):
                layout.call(norms, "_all_gather_base", 128)
        for bucket in range(buckets):
            layout.call(layout.everybody, "all_reduce", 25_000 + bucket, beside=True)
            if synced:
                layout.call(norms, "all_reduce", 256)
        layout.wait()
        if step % 2:
            layout.call(layout.everybody, "all_reduce", 1, read=True)
    return layout


def groups_of(programs: Sequence[Program]) -> Iterator[Group]:
    """Yield each group once, in the order in which they are used first."""
    seen = dict.fromkeys(item.group for one in programs for item in one if isinstance(item, Op))
    yield from seen
