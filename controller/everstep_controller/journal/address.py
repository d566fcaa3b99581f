"""Address of a journal: whether it is a file, or a database of PostgreSQL."""

_SCHEMES = ("postgresql://", "postgres://")


def is_url(journal: str) -> bool:
    """Return whether a journal is told to be in PostgreSQL."""
    return journal.startswith(_SCHEMES)
