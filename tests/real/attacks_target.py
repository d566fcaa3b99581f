"""What an attacker knows of his target, and what he tells of his attack."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_NOTED_MAX = 20


@dataclass(frozen=True, slots=True)
class Target:
    """A node, its agent and its controller, and somebody else's job: all that can be known."""

    uid: int
    # The folder of the agent's sockets.
    run: str
    # Folders and files that are none of his business.
    private: tuple[str, ...]
    # Of the controller, as gRPC calls it: a Unix socket or a port.
    controller: str
    # Listening ports of the agent on loopback: "metrics", "bulk", "liveness" (UDP).
    ports: dict[str, int]
    job: str
    node: str
    # Processes of the job, of the agent and of the controller.
    processes: tuple[int, ...]


@dataclass(slots=True)
class Outcome:
    """What became of an attack."""

    rounds: int = 0
    # Connections that were ended, calls that were refused, files that could not be opened.
    refused: int = 0
    # What should not have been possible: one sentence each, the first ones.
    succeeded: list[str] = field(default_factory=list)

    def note(self, success: str) -> None:
        """Note what should not have been possible."""
        if success not in self.succeeded and len(self.succeeded) < _NOTED_MAX:
            self.succeeded.append(success)

    @contextmanager
    def may_be_refused(self) -> Iterator[None]:
        """Count what the other end, or the kernel, does not allow."""
        try:
            yield
        except (OSError, EOFError):
            self.refused += 1


# What it yields is nothing: a place where another attack may go on.
Rounds = Generator[None, None, None]
Attack = Callable[[Target, Outcome], Rounds]
