"""Names that agents give to things: checked for use in file names and metric labels."""

import re

from everstep_proto.record_codec import WireError

# Names end up in file names, metric labels and command lines.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def is_name(value: str) -> bool:
    """Return whether a text can be used as a name everywhere."""
    return bool(_NAME.fullmatch(value))


def name(value: str, what: str) -> str:
    """Return a name. Raises WireError for one that could not be used everywhere."""
    if not is_name(value):
        raise WireError(f"{what} {value!r:.80} is not a name of letters, digits, '.', '_' and '-'")
    return value
