"""Committed steps of a job: rows of its ledger, by column, and blocks with sums of older ones."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, groupby, repeat
from operator import sub
from types import MappingProxyType
from typing import Self, overload

from everstep_controller.core.accounting.categories import Category

# Number of steps kept one by one; of those before them, sums (StepBlock).
STEPS_KEPT = 4096

_CATEGORIES = tuple(Category)
_PLACES: Mapping[Category, int] = MappingProxyType(
    {category: place for place, category in enumerate(_CATEGORIES)}
)
_Pauses = tuple[tuple[Category, int], ...]


@dataclass(frozen=True, slots=True)
class CommittedStep:
    """A step that counts, as long as no rollback takes it back.

    From its start to its end it was productive, then in excess of that, then at a stand for its
    snapshot, and then it did what is no step.
    """

    step: int
    start_ns: int
    end_ns: int
    productive_ns: int
    excess_category: Category
    stall_ns: int
    # Evaluations, saves and other pauses within it.
    pauses: tuple[tuple[Category, int], ...] = ()

    @property
    def work_ns(self) -> int:
        """Return how long it took, without what is no step."""
        paused_ns = sum(ns for _, ns in self.pauses) if self.pauses else 0
        return self.end_ns - self.start_ns - self.stall_ns - paused_ns

    @property
    def excess_ns(self) -> int:
        """Return what it took beyond its reference time."""
        return self.work_ns - self.productive_ns


@dataclass(frozen=True, slots=True)
class StepColumns:
    """Committed steps as they are written down: by column, times by how much later or longer."""

    step: list[int]
    # From the end of the one before, or from time 0, to its start.
    pause_ns: list[int]
    productive_ns: list[int]
    excess_ns: list[int]
    stall_ns: list[int]
    # Categories of the excess, each with the number of steps in a row that it is of.
    excess_category: list[tuple[Category, int]]
    # Pauses within a step, of those that had some.
    pauses: list[tuple[int, Category, int]] = field(default_factory=list)


class CommittedSteps(Sequence[CommittedStep]):
    """Committed steps with ever higher numbers, in a sixth of the memory of as many values.

    Only the ledger adds steps and takes them back.
    """

    __slots__ = ("_columns", "_excess", "_pauses")

    def __init__(self, steps: Iterable[CommittedStep] = ()) -> None:
        # Step, start, end, productive and stalled time; and the places of the categories.
        self._columns = tuple(array("q") for _ in range(5))
        self._excess = array("B")
        # By number, of the few steps that have some.
        self._pauses: dict[int, _Pauses] = {}
        for step in steps:
            self.append(step)

    def append(self, step: CommittedStep) -> None:
        """Add the newest step."""
        values = (step.step, step.start_ns, step.end_ns, step.productive_ns, step.stall_ns)
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self._excess.append(_PLACES[step.excess_category])
        if step.pauses:
            self._pauses[step.step] = step.pauses
        if len(self._excess) > STEPS_KEPT:
            for column in (*self._columns, self._excess):
                del column[:-STEPS_KEPT]
            while self._pauses and next(iter(self._pauses)) < self._columns[0][0]:
                del self._pauses[next(iter(self._pauses))]

    def take_after(self, last_good: int) -> list[CommittedStep]:
        """Take back all steps after one, and return them."""
        at = bisect_right(self._columns[0], last_good)
        taken = self[at:]
        for column in (*self._columns, self._excess):
            del column[at:]
        for number in [one for one in reversed(self._pauses) if one > last_good]:
            del self._pauses[number]
        return taken

    def replace_newest(self, steps: Sequence[CommittedStep]) -> None:
        """Write the newest steps anew, as many as there are here."""
        self.take_after(self[-len(steps)].step - 1)
        for step in steps:
            self.append(step)

    def ended_ns(self, step: int) -> int:
        """Return when a step ended; 0 when it is not among these."""
        numbers, ends = self._columns[0], self._columns[2]
        at = bisect_right(numbers, step)
        return ends[at - 1] if at and numbers[at - 1] == step else 0

    def longest_ns(self) -> int:
        """Return how long the longest took. Raises ValueError where there is none."""
        longest_ns: int = max(map(sub, self._columns[2], self._columns[1]))
        return longest_ns

    def columns(self) -> StepColumns:
        """Return what is written down of them."""
        steps, starts, ends, productive, stalls = self._columns
        excess = [one.excess_ns for one in self] if self._pauses else _excess(self._columns)
        return StepColumns(
            list(steps),
            list(map(sub, starts, chain((0,), ends))),
            list(productive),
            excess,
            list(stalls),
            [(_CATEGORIES[place], len(list(some))) for place, some in groupby(self._excess)],
            [(step, *one) for step, pauses in self._pauses.items() for one in pauses],
        )

    @classmethod
    def of(cls, columns: StepColumns) -> Self:
        """Return steps that were written down. Raises ValueError for columns of several lengths."""
        pauses: dict[int, _Pauses] = {}
        for step, category, ns in columns.pauses:
            pauses[step] = (*pauses.get(step, ()), (category, ns))
        paused_ns = [sum(ns for _, ns in pauses.get(step, ())) for step in columns.step]
        parts = zip(
            columns.productive_ns, columns.excess_ns, columns.stall_ns, paused_ns, strict=True
        )
        edges = chain.from_iterable(zip(columns.pause_ns, map(sum, parts), strict=True))
        times = list(accumulate(edges))
        excess = [_PLACES[name] for name, count in columns.excess_category for _ in range(count)]
        if not len(columns.step) == len(columns.pause_ns) == len(excess):
            raise ValueError("committed steps: columns of several lengths")
        found = cls()
        found._columns = tuple(
            array("q", column)
            for column in (
                columns.step, times[::2], times[1::2], columns.productive_ns, columns.stall_ns
            )
        )  # fmt: skip
        found._excess = array("B", excess)
        found._pauses = pauses
        return found

    def __len__(self) -> int:
        return len(self._excess)

    @overload
    def __getitem__(self, place: int) -> CommittedStep: ...

    @overload
    def __getitem__(self, place: slice) -> list[CommittedStep]: ...

    def __getitem__(self, place: int | slice) -> CommittedStep | list[CommittedStep]:
        if isinstance(place, slice):
            columns = [column[place] for column in self._columns]
            return list(map(_step, *columns, self._excess[place], self._paused(columns[0])))
        step, start_ns, end_ns, productive_ns, stall_ns = (one[place] for one in self._columns)
        excess, pauses = self._excess[place], self._pauses.get(step, ())
        return _step(step, start_ns, end_ns, productive_ns, stall_ns, excess, pauses)

    def __iter__(self) -> Iterator[CommittedStep]:
        return map(_step, *self._columns, self._excess, self._paused(self._columns[0]))

    def _paused(self, steps: Iterable[int]) -> Iterator["_Pauses"]:
        return (self._pauses.get(step, ()) for step in steps) if self._pauses else repeat(())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CommittedSteps):
            return NotImplemented
        mine, others = (*self._columns, self._excess), (*other._columns, other._excess)
        return mine == others and self._pauses == other._pauses

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"CommittedSteps({list(self)!r})"


def _excess(columns: Sequence["array[int]"]) -> list[int]:
    """Return what steps without a pause took beyond their reference time."""
    _, starts, ends, productive, stalls = columns
    return list(map(sub, map(sub, map(sub, ends, starts), productive), stalls))


def _step(
    step: int,
    start_ns: int,
    end_ns: int,
    productive_ns: int,
    stall_ns: int,
    excess: int,
    pauses: _Pauses,
) -> CommittedStep:
    category = _CATEGORIES[excess]
    return CommittedStep(step, start_ns, end_ns, productive_ns, category, stall_ns, pauses)


# --- those before these --------------------------------------------------------------------------

# Blocks of older steps begin with so many each. When there are too many blocks, two become one, so
# a rollback of any length is known to a hundredth of it.
_BLOCK_STEPS_MIN = 256
_BLOCKS_MAX = 256


@dataclass(slots=True)
class StepBlock:
    """Consecutive committed steps: the last one, how many, and where their time went."""

    last_step: int
    count: int = 0
    spent: dict[Category, int] = field(default_factory=dict)

    def add(self, last_step: int, count: int, spent: Iterator[tuple[Category, int]]) -> None:
        """Add the steps that follow."""
        self.last_step, self.count = last_step, self.count + count
        for category, amount in spent:
            if amount:
                self.spent[category] = self.spent.get(category, 0) + amount

    def take_share(self, share: float) -> "StepBlock":
        """Take its newest steps, a share of all, and return them; each is like the others."""
        count = round(self.count * share)
        spent = {category: round(amount * share) for category, amount in self.spent.items()}
        taken = StepBlock(self.last_step, count, spent)
        self.count -= count
        for category, amount in spent.items():
            self.spent[category] -= amount
        return taken


def add_step(blocks: list[StepBlock], step: CommittedStep) -> None:
    """Add a step to the newest block, or begin another one."""
    if not blocks or blocks[-1].count >= max(_BLOCK_STEPS_MIN, blocks[0].count):
        if len(blocks) == _BLOCKS_MAX:
            _join_pairs(blocks)
        blocks.append(StepBlock(step.step))
    blocks[-1].add(step.step, 1, spent_by(step))


def spent_by(step: CommittedStep) -> Iterator[tuple[Category, int]]:
    """Yield where the time of a step went."""
    yield Category.PRODUCTIVE, step.productive_ns
    yield step.excess_category, step.excess_ns
    yield Category.STALL, step.stall_ns
    yield from step.pauses


def take_blocks_after(blocks: list[StepBlock], last_good: int) -> Iterator[StepBlock]:
    """Take the steps after one out of the blocks, newest first, and yield them."""
    while blocks and blocks[-1].last_step > last_good:
        block = blocks.pop()
        first = blocks[-1].last_step + 1 if blocks else block.last_step - block.count + 1
        if last_good < first:
            yield block
            continue
        taken = block.take_share((block.last_step - last_good) / (block.last_step - first + 1))
        block.last_step = last_good
        if block.count:
            blocks.append(block)
        yield taken
        return


def _join_pairs(blocks: list[StepBlock]) -> None:
    for older, newer in zip(blocks[::2], blocks[1::2], strict=True):
        older.add(newer.last_step, newer.count, iter(newer.spent.items()))
    del blocks[1::2]
