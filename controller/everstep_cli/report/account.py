"""Account of a job or of the fleet: what a report's pictures and tables are made from. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from everstep_controller.core.accounting.categories import PLANNED_WORK, Category, Group
from everstep_controller.core.accounting.reliability import (
    Rate,
    StageTimes,
    failure_rate,
    stage_times,
)

# Groups in the order in which a waterfall takes them off.
FALLING = (
    Group.INITIAL,
    Group.PLANNED,
    Group.OVERHEAD,
    Group.INCIDENT,
    Group.UNKNOWN,
    Group.ABSENT,
    Group.SLOW,
)
# The whole of a recovery, among its stages.
_ALL = "all"
_GROUPS: Mapping[str, Group] = {category.value: category.group for category in Category}


@dataclass(frozen=True, slots=True)
class Slice:
    """Seconds in one category of the ledger."""

    name: str
    seconds: float
    meaning: str = ""

    @property
    def group(self) -> Group:
        """Return its group; what a newer controller says and this one does not know is overhead."""
        return _GROUPS.get(self.name, Group.OVERHEAD)


# Stages of an incident in the order in which they come: what is made again comes last.
STAGES = (
    Category.LOST_IN_FLIGHT.value,
    *(one.value for one in Category if one.value.startswith("inc.")),
    Category.LOST_RECOMPUTE.value,
    Category.LOST_CORRUPT.value,
)


def in_order(slices: Iterable[Slice]) -> list[Slice]:
    """Return stages in the order in which they come; what has another name comes first."""
    places = {name: place for place, name in enumerate(STAGES)}
    return sorted(slices, key=lambda one: places.get(one.name, -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentAccount:
    """What happened once, what was done, and what it cost; times in nanoseconds since 1970."""

    id: str
    onset_ns: int
    # 0 while it is open.
    over_ns: int
    cause: str
    # The node that it is blamed on; "" where none is.
    node: str
    sentence: str
    # What was judged of its cause, and what follows; "" without a verdict.
    verdict: str = ""
    plan: str = ""
    stages: Sequence[Slice] = ()
    steps_lost: int = 0

    @property
    def seconds(self) -> float:
        """Return what it cost."""
        return sum(one.seconds for one in self.stages)

    @property
    def planned(self) -> bool:
        """Return whether somebody wanted it."""
        return self.cause in PLANNED_WORK


@dataclass(frozen=True, slots=True)
class Note:
    """Something that was said of a subject: of a node, a job or the controller."""

    at_ns: int
    subject: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of training time by somebody's definition."""

    name: str
    value: float
    definition: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Period:
    """What an hour, day, week or month went to."""

    begin_ns: int
    end_ns: int
    slices: Sequence[Slice]
    failures: int = 0

    @property
    def seconds(self) -> float:
        """Return all of it."""
        return sum(one.seconds for one in self.slices)

    @property
    def ettr_time(self) -> float:
        """Return (productive + slow.*) / all; 0 of no time."""
        return _training(self.slices)


@dataclass(frozen=True, slots=True)
class Bill:
    """What the jobs of one account or queue had, in nanoseconds of devices, and its price."""

    name: str
    device_ns: int
    ettr_time: float
    failures: int
    # At the price of a device; 0 without one.
    cost: float
    cost_lost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Everything that a report tells of a job, or of all jobs."""

    # "job train", "all jobs".
    subject: str
    begin_ns: int
    end_ns: int
    # What its seconds are of: "wall clock", or "node time".
    unit: str
    slices: Sequence[Slice]
    # Whether it is of one job's whole life, in which each moment was something.
    of_one_job: bool = False
    # The same in device-seconds, of a job that did without some of its devices.
    devices: Sequence[Slice] = ()
    # Of the nodes in jobs, by which failures are counted; 0: not known.
    node_days: float = 0.0
    incidents: Sequence[IncidentAccount] = ()
    periods: Sequence[Period] = ()
    ratios: Sequence[Ratio] = ()
    # Short facts, of which the first ones are for whoever reads no more: a name and a value.
    facts: Sequence[tuple[str, str]] = ()
    figures: Sequence[tuple[str, str]] = ()
    acquitted: Sequence[Note] = ()
    held_back: Sequence[Note] = ()
    definitions: Sequence[str] = field(default=())
    # What is not in these numbers, and why.
    notes: Sequence[str] = ()
    # Who had the devices: by account, and by queue.
    accounts: Sequence[Bill] = ()
    queues: Sequence[Bill] = ()

    @property
    def seconds(self) -> float:
        """Return the time that is accounted for."""
        return sum(one.seconds for one in self.slices)

    @property
    def rate(self) -> Rate | None:
        """Return its failures on 1,000 nodes in a day, with the exact interval of that."""
        return failure_rate(len(self.failures), self.node_days) if self.node_days else None

    def recoveries(self) -> dict[str, StageTimes]:
        """Return how long each stage of the failures that are over took, and "all" of one."""
        over = (one for one in self.failures if one.over_ns and one.stages)
        told = stage_times([{stage.name: stage.seconds for stage in one.stages} for one in over])
        names = (one.name for one in in_order(Slice(name, 0.0) for name in told if name != _ALL))
        return {name: told[name] for name in (*names, _ALL) if name in told}

    @property
    def initial(self) -> float:
        """Return the seconds of its first start."""
        return sum(one.seconds for one in self.slices if one.group is Group.INITIAL)

    @property
    def productive(self) -> float:
        """Return the seconds of steps that count, up to their usual time."""
        return sum(one.seconds for one in self.slices if one.group is Group.PRODUCTIVE)

    @property
    def ettr_time(self) -> float:
        """Return (productive + slow.*) / all; 0 of no time."""
        return _training(self.slices)

    @property
    def failures(self) -> list[IncidentAccount]:
        """Return the incidents that nobody planned."""
        return [one for one in self.incidents if not one.planned]

    def falling(self) -> Iterator[Slice]:
        """Yield what is taken off the whole, in the order of groups, the most of each first."""
        for group in FALLING:
            of_group = [one for one in self.slices if one.group is group and one.seconds > 0]
            yield from sorted(of_group, key=lambda one: -one.seconds)

    def cost_by_cause(self) -> list[tuple[str, int, float]]:
        """Return each cause of failures, how many it had and what they cost, the dearest first."""
        return _summed((one.cause, one.seconds) for one in self.failures)

    def cost_by_node(self) -> list[tuple[str, int, float]]:
        """Return each blamed node, how many failures it had and what they cost."""
        return _summed((one.node, one.seconds) for one in self.failures if one.node)


def _training(slices: Sequence[Slice]) -> float:
    counted = (Group.PRODUCTIVE, Group.SLOW)
    whole = sum(one.seconds for one in slices)
    return sum(one.seconds for one in slices if one.group in counted) / whole if whole > 0 else 0.0


def _summed(costs: Iterator[tuple[str, float]]) -> list[tuple[str, int, float]]:
    found: dict[str, list[float]] = {}
    for name, cost in costs:
        found.setdefault(name, []).append(cost)
    summed = ((name, len(each), sum(each)) for name, each in found.items())
    return sorted(summed, key=lambda one: -one[2])
