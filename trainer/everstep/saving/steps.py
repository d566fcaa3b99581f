"""Step numbers: checked, and converted from the integers of numpy and torch."""

import operator

# What the messages to the agent hold.
_STEP_MAX = 2**63 - 1


class StepError(ValueError):
    """It is no step; the sentence says what it is."""


def step_number(step: object) -> int:
    """Return a step as an int: also of numpy's integers and torch's. Raises StepError."""
    try:
        number = operator.index(step)  # type: ignore[arg-type]  # whether it has one is the question
    except (TypeError, ValueError, RuntimeError) as error:
        raise StepError(f"step: expected a whole number, got {step!r:.60}") from error
    if not 0 <= number <= _STEP_MAX:
        raise StepError(f"step: expected a number from 0 on, got {number!r:.60}")
    return number
