"""Jobs that ran until a fault stopped them: what each GPU took, and what a recorder tells of it.

A rank's CPU enqueues its program, at most so far ahead of its GPU, and waits where it reads a
result. Each group is a stream; an operation starts when what its rank waited for before is done,
and is done when all members have started theirs, in the order of the group. So several groups are
in flight, and CPUs are far ahead or close, as on real GPUs.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hung_jobs.layouts import Group, Item, Op, Program, groups_of

_Key = tuple[object, ...]


@dataclass(slots=True)
class Launch:
    """One operation as its rank runs it."""

    op: Op
    # Which of its rank's operations must be done before it starts.
    after: tuple[int, ...]
    # The operation that its CPU reads before it enqueues this one; -1: none.
    gate: int
    # With whom it meets: the same for all that take part.
    meets: _Key


@dataclass(slots=True)
class RunningRank:
    """One rank: its operations, how far it has come, and where its CPU and its GPU stop."""

    launches: list[Launch]
    enqueued: int = 0
    started: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    first_undone: int = 0
    cpu_stops: int | None = None
    gpu_stops: int | None = None
    # From which operation on its completions are not noticed.
    unnoticed: int | None = None

    @property
    def is_bitten(self) -> bool:
        """Return whether its CPU or its GPU stands where it was made to stop."""
        if self.cpu_stops is not None:
            return self.enqueued >= self.cpu_stops
        if self.gpu_stops is None or self.enqueued <= self.gpu_stops:
            return False
        return all(one in self.done for one in self.launches[self.gpu_stops].after)


def launches_of(rank: int, program: Program, *, blocking: bool) -> list[Launch]:
    """Return a program with what each operation waits for; ``blocking``: the CPU waits, too."""
    return list(_Order(rank, blocking).launches(program))


class _Order:
    """What the next operation of a rank comes after."""

    def __init__(self, rank: int, blocking: bool) -> None:
        self.rank = rank
        self.blocking = blocking
        self.computation: set[int] = set()
        self.beside: list[int] = []
        self.streams: dict[_Key, tuple[int, tuple[int, ...], tuple[int, ...]]] = {}
        self.counts: dict[_Key, int] = {}
        self.gate = -1

    def launches(self, program: Sequence[Item]) -> Iterator[Launch]:
        """Yield the operations in order."""
        at = 0
        for item in program:
            if isinstance(item, Op):
                yield self._launch(item, at)
                at += 1
                continue
            self.computation.update(self.beside)
            if self.blocking and self.beside:
                self.gate = max(self.gate, *self.beside)
            self.beside.clear()

    def _launch(self, op: Op, at: int) -> Launch:
        pair = None if op.peer is None or op.batch else frozenset((self.rank, op.peer))
        batch, before, same = self.streams.get((op.group, pair), (0, (), ()))
        if op.batch and op.batch == batch:
            same = (*same, at)
        else:
            before, same = (*self.computation, *same), (at,)
        self.streams[op.group, pair] = (op.batch, before, same)
        found = Launch(op, before, self.gate, self._meeting(op))
        if op.beside:
            self.beside.append(at)
        else:
            self.computation = {at}
        if op.read or (self.blocking and not op.beside):
            self.gate = at
        return found

    def _meeting(self, op: Op) -> _Key:
        ends: _Key = ()
        if op.peer is not None:
            ends = (self.rank, op.peer) if op.name == "send" else (op.peer, self.rank)
        key = (op.group, *ends)
        self.counts[key] = self.counts.get(key, 0) + 1
        return (*key, self.counts[key])


@dataclass(slots=True)
class Run:
    """A job on its way."""

    ranks: list[RunningRank]
    ahead: int
    met: dict[_Key, dict[int, int]] = field(default_factory=dict)
    # Parts of each coalesced batch, by rank, that have met their other end.
    matched: set[tuple[int, int]] = field(default_factory=set)

    def settle(self) -> None:
        """Run until nothing moves."""
        work = set(range(len(self.ranks)))
        while work:
            number = work.pop()
            self._enqueue(self.ranks[number])
            work.update(self._start(number))

    def _enqueue(self, rank: RunningRank) -> None:
        end = len(rank.launches) if rank.cpu_stops is None else rank.cpu_stops
        while rank.enqueued < min(end, rank.first_undone + self.ahead):
            gate = rank.launches[rank.enqueued].gate
            if gate >= 0 and gate not in rank.done:
                return
            rank.enqueued += 1

    def _start(self, number: int) -> set[int]:
        rank = self.ranks[number]
        moved: set[int] = set()
        for at in range(rank.first_undone, rank.enqueued):
            if at in rank.started or (rank.gpu_stops is not None and at >= rank.gpu_stops):
                continue
            launch = rank.launches[at]
            if all(one in rank.done for one in launch.after):
                rank.started.add(at)
                moved |= self._meet(number, at, launch)
        return moved

    def _meet(self, number: int, at: int, launch: Launch) -> set[int]:
        here = self.met.setdefault(launch.meets, {})
        here[number] = at
        expected = 2 if launch.op.peer is not None else len(launch.op.group[1])
        if len(here) < expected:
            return set()
        ops = [self.ranks[rank].launches[place].op for rank, place in here.items()]
        if launch.op.peer is None and len({_must_be_equal(op) for op in ops}) > 1:
            return set()
        for rank, place in here.items():
            self._part_done(rank, place)
        return set(here)

    def _part_done(self, number: int, at: int) -> None:
        rank = self.ranks[number]
        batch = rank.launches[at].op.batch
        self.matched.add((number, at))
        parts = [at]
        if batch:
            near = range(max(0, at - 4), min(len(rank.launches), at + 5))
            parts = [one for one in near if rank.launches[one].op.batch == batch]
        if all((number, one) in self.matched for one in parts):
            rank.done.update(parts)
            while rank.first_undone in rank.done:
                rank.first_undone += 1


def _must_be_equal(op: Op) -> tuple[str, int]:
    return op.name, 0 if op.name == "all_to_all" else op.size


# --- dumps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorder:
    """How the recorders of a job write."""

    backend: str = "nccl"
    # Only what is not done; or the last so many operations.
    only_active: bool = False
    ring: int = 2000
    # Before torch 2.8 a coalesced batch counted as a collective, too.
    schema: str = "2.9"
    timing: bool = False
    status: bool = True
    # Whether groups have descriptions of their own.
    described: bool = True
    configured: bool = True


def drawn_recorder(draw: random.Random, *, with_p2p: bool) -> Recorder:
    """Return how a job writes its dumps, at random."""
    backend = "gloo" if not with_p2p and draw.random() < 0.3 else "nccl"
    return Recorder(
        backend,
        only_active=backend == "nccl" and draw.random() < 0.3,
        ring=draw.choice((2000, 2000, 2000, 100, 30)),
        schema=draw.choice(("2.4", "2.9", "2.9", "2.10")),
        timing=backend == "nccl" and draw.random() < 0.2,
        status=draw.random() < 0.85,
        described=draw.random() < 0.8,
    )


def dump_of(
    number: int, rank: RunningRank, names: dict[Group, int], how: Recorder
) -> dict[str, object]:
    """Return what a recorder writes of a rank."""
    own = [group for group in names if number in group[1]]
    writer = _Writer(number, rank, names, how)
    entries = writer.entries()
    kept = [one for one in entries if not (how.only_active and one["state"] == "completed")]
    config = {
        str(names[group]): {
            "name": str(names[group]),
            "desc": writer.description(group),
            "ranks": str(list(group[1])),
        }
        for group in own
    }
    found: dict[str, object] = {
        "version": how.schema,
        "pg_config": config if how.configured else {},
        "entries": kept[-how.ring :],
    }
    if how.status:
        found["pg_status"] = writer.status
    return found


class _Writer:
    """Writes the operations of one rank."""

    def __init__(
        self, number: int, rank: RunningRank, names: dict[Group, int], how: Recorder
    ) -> None:
        self.number, self.rank, self.names, self.how = number, rank, names, how
        self.counts: dict[Group, list[int]] = {}
        self.status: dict[str, dict[str, int]] = {}
        self.written: list[dict[str, object]] = []
        self.numbers = {group: at for at, group in enumerate(g for g in names if number in g[1])}

    def description(self, group: Group) -> str:
        """Return what the recorder calls a group."""
        return group[0] if self.how.described or group[0] == "default_pg" else "undefined"

    def entries(self) -> list[dict[str, object]]:
        """Return all that was recorded, oldest first."""
        launches = self.rank.launches
        batch = 0
        for at in range(self.rank.enqueued):
            op = launches[at].op
            seen = self.counts.setdefault(op.group, [0, 0])
            if op.peer is None:
                seen[0] += 1
            elif not op.batch or op.batch != batch:
                seen[1] += 1
                seen[0] += bool(op.batch) and self.how.schema == "2.4"
            batch = op.batch
            self._write(op, at, seen)
            following = launches[at + 1].op.batch if at + 1 < len(launches) else 0
            if op.batch and op.batch != following and self.how.backend == "nccl":
                self._write_batch(op, at, seen)
        return self.written

    def _is_noticed(self, at: int) -> bool:
        late = self.rank.unnoticed is not None and at >= self.rank.unnoticed
        return at in self.rank.done and not late

    def _write(self, op: Op, at: int, seen: list[int]) -> None:
        name = op.name
        if op.peer is not None:
            ends = (op.group[1].index(self.number), op.group[1].index(op.peer))
            name = f"{name} {ends[0]}{'->' if name == 'send' else '<-'}{ends[1]}"
        done = self._is_noticed(at) and not op.batch
        self._entry(op, at, name, seen, done=done, is_p2p=op.peer is not None)
        if not op.batch:
            self._count(op.group, seen[op.peer is not None], done=done)

    def _write_batch(self, op: Op, at: int, seen: list[int]) -> None:
        done = self._is_noticed(at)
        bare = Op(op.group, "coalesced", 0)
        self._entry(bare, at, "coalesced", seen, done=done, is_p2p=False)
        self._count(op.group, seen[1], done=done)

    def _count(self, group: Group, sequence: int, *, done: bool) -> None:
        kept = self.status.setdefault(
            str(self.numbers[group]),
            {
                "last_enqueued_collective": -1,
                "last_started_collective": -1,
                "last_completed_collective": -1,
            },
        )
        kept["last_enqueued_collective"] = sequence
        if done:
            kept["last_completed_collective"] = sequence

    def _entry(
        self, op: Op, at: int, name: str, seen: list[int], *, done: bool, is_p2p: bool
    ) -> None:
        gloo = self.how.backend == "gloo"
        state = "completed" if done and not gloo else "scheduled"
        if self.how.timing and not done and at in self.rank.started and not op.batch:
            state = "started"
        place = len(self.written)
        self.written.append(
            {
                "record_id": place,
                "pg_id": self.numbers[op.group],
                "process_group": (str(self.names[op.group]), self.description(op.group)),
                "collective_seq_id": seen[0],
                "p2p_seq_id": seen[1],
                "op_id": place,
                "profiling_name": f"{self.how.backend}:{name}",
                "time_created_ns": 1_000_000_000 + 1000 * place,
                "input_sizes": [[op.size]] if op.size else [],
                "input_dtypes": ["Float"] if op.size else [],
                "output_sizes": [[op.size]] if op.size else [],
                "output_dtypes": ["Float"] if op.size else [],
                "state": state,
                "retired": done,
                "timeout_ms": 600_000,
                "is_p2p": is_p2p,
            }
        )


def names_of(programs: Sequence[Program], everybody: Group) -> dict[Group, int]:
    """Return the number by which torch names each group."""
    order = [everybody, *(group for group in groups_of(programs) if group != everybody)]
    return {group: place for place, group in enumerate(order)}
