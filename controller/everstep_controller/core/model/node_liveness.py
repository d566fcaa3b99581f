"""Node liveness: who hears a node, what a silence has shown, and how often its streams end."""

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
    # Why the controller takes its own word for no loss, and when that held last; "": it does.
    held: str = ""
    held_ns: int = 0
    # Why the node is doubtful, and since when; empty while it is not.
    doubt: str = ""
    doubted_ns: int = 0


@dataclass(slots=True)
class NodeLiveness:
    """Who hears a node: its stream, its peers, and what was asked about a silence."""

    connected: bool = False
    # When its stream ended or its peers lost it, whichever was first; 0 while it is heard.
    silent_since_ns: int = 0
    # Its agent has not said since this controller began what is open there.
    unheard: bool = False
    # When it has said so last, in a Hello; and whether it is to say so again, in a new one.
    hello_ns: int = 0
    renewing: bool = False
    # When its agent answered last on its stream to a ping.
    answered_ns: int = 0
    # Since when it answers there, and peers do not hear it over UDP.
    blocked_since_ns: int = 0
    # Peers that watch it over UDP and do not hear it.
    silent_to: list[str] = field(default_factory=list)
    silence: Silence = field(default_factory=Silence)
    confirmation: Confirmation | None = None
    # Silent nodes that it was asked about, and has not answered.
    questions: list[str] = field(default_factory=list)
    # Silent while it is in maintenance, so nothing there is waited for.
    absent: bool = False
    # Who has said of a lost node that it is lost; "": only that nothing of it answered.
    lost_by: str = ""


@dataclass(slots=True)
class StreamEnds:
    """Ends of the streams of a node's agent."""

    # When some have ended lately, and since when they do so again and again; 0: they do not.
    ends_ns: list[int] = field(default_factory=list)
    flaps_since_ns: int = 0
    # The last message with which the controller could not go on; "" where none is known.
    reason: str = ""
