"""Events of isolation drivers: the results of their calls to schedulers."""

from dataclasses import dataclass

from everstep_controller.core.model.isolation import IsolationResult, SeenHold


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReported:
    """A call of an isolation driver has ended.

    A reading has ``read``, or ``failure``: why it came to nothing. ``seen`` is how it differs from
    what the controller knew: a scheduler may withhold whole racks for months. An apply has results,
    one for each node that was asked for.
    """

    driver: str
    read: bool = False
    seen: tuple[SeenHold, ...] = ()
    results: tuple[IsolationResult, ...] = ()
    failure: str = ""
