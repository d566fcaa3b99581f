"""Which steps are snapshotted: the controller's word, which changes ahead of all ranks. Pure."""

from dataclasses import dataclass

# More are only there if no rank has passed the start of the oldest one.
_RULES_MAX = 16


@dataclass(frozen=True, slots=True)
class Rule:
    """From step ``start`` on, the multiples of ``every`` are snapshotted."""

    start: int = 0
    every: int = 1


@dataclass(frozen=True, slots=True)
class Cadence:
    """The rules of one generation by their first steps; before the first one, every step counts.

    A rank that is behind the newest rule follows the one before. So all ranks take the same steps,
    however far apart they are when they hear of it.
    """

    generation: int = 0
    rules: tuple[Rule, ...] = (Rule(),)

    def told(self, generation: int, rule: Rule) -> "Cadence":
        """Return the cadence with a rule that replaces every other from its first step on."""
        known = self.rules if generation == self.generation else Cadence().rules
        older = tuple(one for one in known if one.start < rule.start)
        if not older or older[-1].every != rule.every:
            older = (*older, rule)
        return Cadence(generation, older[-_RULES_MAX:])

    def next_step(self, generation: int, step: int) -> int:
        """Return the first step of a generation, not before ``step``, that is snapshotted."""
        if generation != self.generation:
            return step  # nothing has been said of it
        for rule, after in zip(self.rules, self.rules[1:], strict=False):
            if step < after.start:
                found = _multiple(rule.every, step)
                if found < after.start:
                    return found
                step = after.start
        return _multiple(self.rules[-1].every, step)


@dataclass(frozen=True, slots=True)
class Hold:
    """A restart is planned: the first snapshot not before a step is the last of its generation."""

    generation: int
    after_step: int

    def keeps(self, cadence: Cadence, generation: int, step: int) -> bool:
        """Return whether a rank that would begin this step waits for the restart instead."""
        last = cadence.next_step(generation, self.after_step)
        return generation == self.generation and step > last


def _multiple(of: int, step: int) -> int:
    return -(-step // of) * of
