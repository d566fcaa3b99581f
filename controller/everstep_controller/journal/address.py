"""Address of a journal: whether it is a file, or a database of PostgreSQL."""

_SCHEMES = ("postgresql://", "postgres://")
# A file of such a name is an address that was written with a slash less.
_NEARLY = ("postgresql:", "postgres:")


def is_url(journal: str) -> bool:
    """Return whether a journal is told to be in PostgreSQL."""
    return journal.startswith(_SCHEMES)


def other_scheme(journal: str) -> str:
    """Return what an address begins with that is neither a file's nor a database's; "" for none."""
    if is_url(journal):
        return ""
    if "://" in journal:
        return f"{journal.partition('://')[0]}://"
    return next((nearly for nearly in _NEARLY if journal.startswith(nearly)), "")
