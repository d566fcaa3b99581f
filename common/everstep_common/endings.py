"""Job end reasons: their wording, where a program has to recognise it again."""

_BY_USER = "ended by its user on "
_BY_OPERATOR = "stopped by operator "


def by_user_on(node: str) -> str:
    """Return the reason of a job that its user has ended (Ctrl-C, SIGTERM) on a node."""
    return f"{_BY_USER}{node}"


def by_operator(operator: str, why: str) -> str:
    """Return the reason of a job that an operator has stopped for good."""
    return f"{_BY_OPERATOR}{operator}: {why}"


def is_by_user(reason: str) -> bool:
    """Return whether somebody meant a job to end: then no rank's failure is the cause."""
    return reason.startswith((_BY_USER, _BY_OPERATOR))
