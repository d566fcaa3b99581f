"""Snapshot cadence: which steps are snapshotted, by rules that all ranks know ahead. Pure."""

from dataclasses import dataclass

# How many rules are kept; more are needed only if no rank has passed the start of the oldest.
_RULES_MAX = 16
# Well below the three seconds in which all ranks shall hear of a planned restart (the controller's
# core/planned/restarts.py); a question costs a tenth of a millisecond.
_ASK_EVERY_S = 1.5


@dataclass(frozen=True, slots=True)
class CadenceRule:
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
    rules: tuple[CadenceRule, ...] = (CadenceRule(),)

    @property
    def usual(self) -> int:
        """Return the number of steps from one snapshot to the next, by the newest rule."""
        return self.rules[-1].every

    def with_rule(self, generation: int, rule: CadenceRule) -> "Cadence":
        """Return the cadence with a rule that replaces every other from its first step on."""
        known = self.rules if generation == self.generation else Cadence().rules
        older = tuple(one for one in known if one.start < rule.start)
        if not older or older[-1].every != rule.every:
            older = (*older, rule)
        return Cadence(generation, older[-_RULES_MAX:])

    def rule_of(self, generation: int, step: int) -> CadenceRule:
        """Return the rule that a step of a generation is under."""
        known = self.rules if generation == self.generation else Cadence().rules
        return next((rule for rule in reversed(known) if rule.start <= step), CadenceRule())

    def thinned(self, generation: int, step: int) -> "Cadence":
        """Return the cadence with half as many steps after one that found no slot.

        Members that thin out by themselves so have the steps in common of the one that takes the
        fewest: a multiple of a multiple. A rule that has not begun is given its chance first.
        """
        known = self if generation == self.generation else Cadence(generation)
        if step < known.rules[-1].start:
            return self
        return known.with_rule(generation, CadenceRule(step + 1, 2 * known.usual))

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
class StepHold:
    """A restart is planned: this step is snapshotted, whatever the cadence, and is the last one."""

    generation: int
    after_step: int

    def is_last_step(self, generation: int, step: int) -> bool:
        """Return whether this very step is to be restored after the restart."""
        return (generation, step) == (self.generation, self.after_step)


def next_snapshot_step(cadence: Cadence, hold: StepHold | None, generation: int, step: int) -> int:
    """Return the first step, not before ``step``, that is snapshotted."""
    planned = cadence.next_step(generation, step)
    if hold is None or generation != hold.generation or step > hold.after_step:
        return planned
    return min(planned, hold.after_step)


@dataclass(frozen=True, slots=True)
class ExpiredHold:
    """Planned restart that a rank waited for in vain, and the step of its next try, if any."""

    hold: StepHold | None = None
    again_after: int | None = None

    def last_step(self, hold: StepHold | None, generation: int) -> int | None:
        """Return the step after which a rank waits for a restart; None: it does not."""
        if hold is None or hold.generation != generation:
            return None
        return self.again_after if hold == self.hold else hold.after_step

    def in_vain(self, cadence: Cadence, hold: StepHold, step: int) -> "ExpiredHold":
        """Return what follows a wait before a step: one more, after what is snapshotted anyway.

        A plan that is not carried out must not cost training a wait at each step.
        """
        following = cadence.next_step(hold.generation, step)
        once_more = following > step and hold != self.hold
        return ExpiredHold(hold, following if once_more else None)


@dataclass(frozen=True, slots=True)
class PollPace:
    """Pace of a rank from one question to the next, so that it asks again in time.

    It hears of a planned restart only when it asks. So it is told to ask again before the step that
    is wanted, and one that is slower than it was overshoots by a factor of two at most.
    """

    step: int = 0
    at_s: float = 0.0
    ahead: int = 1

    def after_question(self, step: int, at_s: float) -> "PollPace":
        """Return the pace after a question; ``ahead`` says in how many steps to ask again."""
        steps, seconds = step - self.step, at_s - self.at_s
        fits = steps * _ASK_EVERY_S / seconds if seconds > 0 else 1.0
        return PollPace(step, at_s, max(1, int(min(fits, 2.0 * self.ahead))))


def _multiple(of: int, step: int) -> int:
    return -(-step // of) * of
