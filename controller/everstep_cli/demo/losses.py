"""Loss by step, to the bit: what the training script wrote, and whether two runs agree."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Step and loss, as float.hex() wrote it.
LossLine = tuple[int, str]


@dataclass(frozen=True, slots=True)
class LossComparison:
    """Comparison of the losses of a run with those of an uninterrupted one."""

    steps: int
    equal: int
    missing: tuple[int, ...]
    # Steps that more than one generation computed, and how many of them came out the same.
    retrained: int
    retrained_equal: int
    first_difference: str

    @property
    def identical(self) -> bool:
        """Whether every step is there and equal to the bit, however often it was computed."""
        return self.equal == self.steps and self.retrained == self.retrained_equal


def read_losses(path: Path) -> list[LossLine]:
    """Return the losses in a file; a last line that a killed process left torn is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    complete = text[: text.rfind("\n") + 1].splitlines()
    pairs = (line.partition("\t") for line in complete)
    return [(int(step), loss) for step, _, loss in pairs]


def compare(run: Iterable[LossLine], reference: Iterable[LossLine], steps: int) -> LossComparison:
    """Compare steps 0 to ``steps`` - 1 of a run with its reference."""
    expected = dict(reference)
    seen: dict[int, list[str]] = defaultdict(list)
    for step, loss in run:
        seen[step].append(loss)
    different = [
        step for step in range(steps) if step not in expected or set(seen[step]) != {expected[step]}
    ]
    repeated = [losses for losses in seen.values() if len(losses) > 1]
    return LossComparison(
        steps=steps,
        equal=steps - len(different),
        missing=tuple(step for step in range(steps) if not seen[step]),
        retrained=len(repeated),
        retrained_equal=sum(len(set(losses)) == 1 for losses in repeated),
        first_difference=_difference(different[0], seen, expected) if different else "",
    )


def _difference(step: int, seen: dict[int, list[str]], expected: dict[int, str]) -> str:
    got = " and ".join(sorted(set(seen[step]))) or "nothing"
    return f"step {step}: {got}, uninterrupted {expected.get(step, 'nothing')}"
