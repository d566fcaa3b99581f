"""Agents that are not taken for their node's: those that are refused, and one that asks for a name.

An agent is known by the id of its outbox, which it makes when it first starts on its data folder.
"""

from dataclasses import dataclass, field
from enum import Enum

from everstep_common.reports import EndedJob
from everstep_controller.core.model.snapshots import StepKey


class RefusalKind(Enum):
    """What is wrong with an agent that is refused."""

    # Another agent answers under its node's name.
    NAME = "name"
    # It belongs to another cluster.
    CLUSTER = "cluster"
    # It has seen a term or a generation that is not of this journal.
    NEWER = "newer"


@dataclass(frozen=True, slots=True)
class SeenGeneration:
    """Newest generation of a job that agents have seen, and its ranks on all nodes, if known."""

    number: int
    world_size: int = 0


@dataclass(frozen=True, slots=True)
class AdoptedGeneration:
    """Newest generation of a job, by the word of agents: the journal has lost it.

    Whether a snapshot was ever made, only they can tell. World size: 0 where nobody has said it.
    """

    number: int
    world_size: int


@dataclass(frozen=True, slots=True)
class LostJob:
    """A job with launchers that a journal does not know, and its newest generation."""

    id: str
    generation: SeenGeneration
    # Generation and step that it began from, where its agent has begun it and said so.
    began_from: StepKey | None = None


@dataclass(slots=True)
class LostEnd:
    """Agents' word on a job that the journal does not know: its end, its newest generation.

    That may be newer than the one after which it ended, as far as is known: then it goes on.
    """

    heard_ns: int
    told: EndedJob | None = None
    told_by: str = ""
    # The newest term that an agent had seen which told it.
    seen_term: int = 0
    # It was told while the controller acted on nothing: a rebuilt journal knows this end.
    rebuilt: bool = False
    newest_seen: int = 0


@dataclass(slots=True)
class NamedRanks:
    """Newest generation of a job that agents have named while a journal was rebuilt, and where.

    The nodes are those with a launcher of it: as far as is known, its ranks run there.
    """

    generation: int
    # Keys of a dictionary: unlike a set they are written down in the same order again.
    nodes: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class RefusedAgent:
    """An agent that is refused whenever it says Hello, and why."""

    node: str
    outbox: str
    kind: RefusalKind
    # One sentence, for its log and for people.
    reason: str
    since_ns: int
    last_ns: int
    # What it has seen, for the time when it turns out to be right.
    highest_term: int = 0
    generations: dict[str, SeenGeneration] = field(default_factory=dict)


@dataclass(slots=True)
class Contender:
    """An agent that asks for the name of a node whose known agent may still be there."""

    outbox: str
    address: str
    # Number of the event with which it came.
    number: int
    # The known agent was asked for an answer on its stream, and has answered.
    asked: bool = False
    answered: bool = False


@dataclass(slots=True)
class AgentIdentity:
    """Which agent speaks for a node, and who else asks to."""

    # Where its stream comes from: a host.
    address: str = ""
    # Another agent that asks for the node's name, and the outbox of one that may have it.
    contender: Contender | None = None
    successor: str = ""
    # Term in which this controller last answered its Hello.
    welcomed_term: int = 0
    # The name under which the agent came back; "" for a node that is known by its own.
    renamed_to: str = ""
