"""Job end reasons: their wording, where a program has to recognise it again."""

import re

_BY_USER = "ended by its user on "
_BY_OPERATOR = "stopped by operator "
_IN_MEMORY = re.compile(r"(after step \d+), which stays in memory of .*? for [\d.e+]+ min")


def by_user_on(node: str) -> str:
    """Return the reason of a job that its user has ended (Ctrl-C, SIGTERM) on a node."""
    return f"{_BY_USER}{node}"


def by_operator(operator: str, why: str) -> str:
    """Return the reason of a job that an operator has stopped for good."""
    return f"{_BY_OPERATOR}{operator}: {why}"


def is_by_user(reason: str) -> bool:
    """Return whether somebody meant a job to end: then no rank's failure is the cause."""
    return reason.startswith((_BY_USER, _BY_OPERATOR))


def kept_in_memory(step: int, nodes: str, minutes: float) -> str:
    """Return which step is left of a job that ended, and where."""
    return f"after step {step}, which stays in memory of {nodes} for {minutes:g} min"


def without_memory(reason: str) -> str:
    """Return the same reason of a job whose agent ends with it, and whose memory is gone then."""
    return _IN_MEMORY.sub(r"\1, which was in memory only (--persist FOLDER keeps steps)", reason)
