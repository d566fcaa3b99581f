"""Compute time: how long a rank computed in its steps without waiting for others. Pure.

Ranks of a synchronous job take equally long for a step. Who makes the others wait shows in what is
left of it without the waiting.
"""

from dataclasses import dataclass

# Both count from the start of the rank's process, and begin anew from 0: after 101 days, and after
# 65,536 steps. They are one number, which memory and messages hold whole.
STEP_BITS, US_BITS = 16, 43
STEPS: int = 2**STEP_BITS
MICROSECONDS: int = 2**US_BITS
PACKED_MAX = 2 ** (STEP_BITS + US_BITS) - 1


@dataclass(frozen=True, slots=True)
class ComputeTime:
    """How long a rank worked itself so far, and in how many steps."""

    packed: int = 0
    # What is left of the newest step below a microsecond.
    _rest_ns: int = 0

    def add_step(self, own_ns: int) -> "ComputeTime":
        """Return it with one more step."""
        microseconds, rest_ns = divmod(own_ns + self._rest_ns, 1000)
        steps = (self.packed + 1) % STEPS
        total = ((self.packed >> STEP_BITS) + microseconds) % MICROSECONDS
        # 0 is who has told nothing.
        return ComputeTime(max(1, total << STEP_BITS | steps), rest_ns)


def steps_between(before: int, after: int) -> int:
    """Return how many steps lie between two packed numbers of one process."""
    return (after - before) % STEPS


def seconds_between(before: int, after: int) -> float:
    """Return how long the rank worked itself between them, in seconds."""
    return ((after >> STEP_BITS) - (before >> STEP_BITS)) % MICROSECONDS / 1e6
