"""Injections: the faults that operators have ordered on purpose on one node."""

from dataclasses import dataclass, field

from everstep_common.reports import InjectionState


@dataclass(slots=True)
class Injection:
    """A fault that an operator ordered on purpose."""

    id: str
    spec: str
    duration_ns: int
    operator: str
    reason: str
    ordered_ns: int
    state: InjectionState = InjectionState.ORDERED
    message: str = ""
    # Its end was ordered.
    clearing: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more is to come of it."""
        return self.state in (InjectionState.REFUSED, InjectionState.ENDED)


@dataclass(slots=True)
class NodeInjections:
    """Injections of one node that are listed, and how many there were."""

    by_id: dict[str, Injection] = field(default_factory=dict)
    # Number of injections ordered so far, so that no two get the same id.
    ordered: int = 0
