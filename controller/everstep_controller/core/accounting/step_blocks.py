"""Blocks of committed steps: sums of steps that are too many to be kept one by one."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.committed_steps import CommittedStep

# Blocks begin with so many steps each. When there are too many blocks, two become one each, so a
# rollback of any length is known to a hundredth of it.
_STEPS_MIN = 256
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
    if not blocks or blocks[-1].count >= max(_STEPS_MIN, blocks[0].count):
        if len(blocks) == _BLOCKS_MAX:
            _join_pairs(blocks)
        blocks.append(StepBlock(step.step))
    blocks[-1].add(step.step, 1, spent_by(step))


def spent_by(step: CommittedStep) -> Iterator[tuple[Category, int]]:
    """Yield where the time of a step went."""
    yield Category.PRODUCTIVE, step.productive_ns
    yield step.excess_category, step.excess_ns
    yield Category.STALL, step.stall_ns


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
