"""Job end reasons: their wording, where a program has to recognise it again."""

_BY_USER = "ended by its user on "


def by_user_on(node: str) -> str:
    """Return the reason of a job that its user has ended (Ctrl-C, SIGTERM) on a node."""
    return f"{_BY_USER}{node}"


def is_by_user(reason: str) -> bool:
    """Return whether a job has ended for such a reason: then no rank's failure is the cause."""
    return reason.startswith(_BY_USER)
