"""Hang of a job: which nodes say that their ranks stand still, and what was judged of that."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StillNode:
    """Word of a node that none of its ranks has moved for longer than they ever do."""

    since_ns: int
    # For how long nothing may happen there, as it has learned.
    usual_ns: int
    # Newest step that all its ranks completed; None when they told of none.
    step: int | None = None
    # Why operations say nothing there, and steps alone decided; "" where they do.
    blind: str = ""
