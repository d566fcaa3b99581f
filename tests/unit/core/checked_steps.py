"""A core that compares the state before and after each step of a decision with what that names."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar

from everstep_controller.core.actions import Announce, SetTimer
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.dispatch.reconcile import reconcile
from everstep_controller.core.dispatch.steps import JOB_STEPS, NODE_STEPS, Step, Steps, SubjectT
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.turn import Reconciliation
from everstep_controller.journal.codec import encode

# Since when a record is in its state, and why, is part of that.
_LIFE = {"since_ns": "state", "reason": "state"}


class CheckedCore(Core):
    """A core of which each step may change what it names, and nothing else."""

    # What steps of such cores have changed, by their names.
    seen: ClassVar[set[tuple[str, str]]] = set()

    def decide(self, turn: Reconciliation) -> None:
        """See Core."""
        checked = Steps(
            of_nodes=[partial(self.run, step) for step in NODE_STEPS],
            of_waiting_jobs=[partial(self.run, step) for step in JOB_STEPS if step.waiting],
            of_jobs=[partial(self.run, step) for step in JOB_STEPS if not step.waiting],
        )
        reconcile(turn, checked)

    def run(self, step: Step[SubjectT], turn: Reconciliation, subject: SubjectT) -> None:
        """Run a step. Raises AssertionError where it changes what it does not name."""
        before, ordered = encode(turn.state), _orders(turn)
        step.decide(turn, subject)
        after = encode(turn.state)
        found = {"orders"} if _orders(turn) != ordered else set[str]()
        if after != before:
            found |= set(_changes(json.loads(before), json.loads(after), subject))
        undeclared = sorted(found - set(step.changes))
        assert not undeclared, f"{step.name} changes {undeclared} besides what it names"
        self.seen.update((step.name, one) for one in found)


def _orders(turn: Reconciliation) -> int:
    return sum(not isinstance(one, Announce | SetTimer) for one in turn.actions)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], subject: object) -> Iterator[str]:
    """Yield what differs, in the words of the steps."""
    own = subject.id if isinstance(subject, JobRecord) else getattr(subject, "name", "")
    kind = "jobs" if isinstance(subject, JobRecord) else "nodes"
    for part in ("nodes", "jobs"):
        if before[part].keys() != after[part].keys():
            yield part
        for name in before[part].keys() & after[part].keys():
            of = "" if (part, name) == (kind, own) else f"{part}."
            for value in _differing(before[part][name], after[part][name]):
                yield f"{of}{_LIFE.get(value, value)}"
    for field in _differing(before, after):
        if field not in ("nodes", "jobs"):
            yield "timers" if field == "timers" else f"state.{field}"


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    return (one for one in before.keys() | after.keys() if before.get(one) != after.get(one))
