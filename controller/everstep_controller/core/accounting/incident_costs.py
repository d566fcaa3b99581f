"""Incident costs: whose fault an incident was, and what each one cost by category."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from everstep_common.failures.classification import Side, side
from everstep_controller.core.accounting.categories import PLANNED_WORK, Category
from everstep_controller.core.accounting.ledger import Ledger


@dataclass(frozen=True, slots=True)
class CountedIncident:
    """What accounting looks at of an incident.

    ``first_death`` is the kind of exit of the rank that died first; empty where none died.
    """

    id: str
    cause: str
    first_death: str = ""
    over: bool = True

    @property
    def is_of_program(self) -> bool:
        """Whether the rank that died first died of its own program."""
        return bool(self.first_death) and side(self.first_death) is Side.SCRIPT


def time_of_program(
    ledger: Ledger, incidents: Iterable[CountedIncident], now_ns: int
) -> Counter[Category]:
    """Return the nanoseconds by category of incidents that the user's own program caused."""
    spent: Counter[Category] = Counter()
    for incident in incidents:
        if incident.is_of_program:
            spent.update(ledger.totals(now_ns, incident.id))
    return spent


def recoveries(
    ledger: Ledger, incidents: Iterable[CountedIncident], now_ns: int
) -> Iterator[dict[str, float]]:
    """Yield the seconds by stage of each failure that is over, as far as they are its own still.

    Planned work is no failure.
    """
    for incident in incidents:
        if incident.over and incident.cause not in PLANNED_WORK:
            costs = ledger.totals(now_ns, incident.id)
            if costs:
                yield {category.value: amount / 1e9 for category, amount in costs.items()}
