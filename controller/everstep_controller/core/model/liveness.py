"""Liveness values: what each channel has said of a node since it fell silent."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Confirmation:
    """Round of questions about a silent node: who was asked, and whether each has got an answer.

    Its agent is asked itself as well, by a ping of the same id on its stream.
    """

    id: str
    asked: list[str]
    asked_ns: int
    verdicts: dict[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class Silence:
    """Evidence of one silence of a node, from its first missed sign to the agent's next word."""

    # When the agent answered peers last, and the kernel, and what that said.
    heard_ns: int = 0
    kernel_ns: int = 0
    kernel_said: str = ""
    # Peers that were asked since then and got nothing.
    denied: list[str] = field(default_factory=list)
    # When the first round was asked in which they got nothing.
    denied_since_ns: int = 0
    # Who watched the node when it fell silent; and those of them that have told so, with the time
    # when each had heard it last.
    watchers: list[str] = field(default_factory=list)
    unheard: dict[str, int] = field(default_factory=dict)
    # The first round of questions is over.
    asked: bool = False
    # Why the agent ended, where it has said so.
    leaving: str = ""
    # Until when the controller, which has just started, waits for the agent.
    expected_until_ns: int = 0
    # Why the node is doubtful, and since when; empty while it is not.
    doubt: str = ""
    doubted_ns: int = 0
