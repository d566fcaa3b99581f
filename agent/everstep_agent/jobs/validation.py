"""Validation of numbers and names that a job sends; anybody may send anything. Pure."""

import re
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType

# As the controller takes it: names end up in file names, metric labels and command lines.
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
# Steps and generations name folders of up to 18 digits; this also leaves room to count on.
_MOST = 10**18 - 1
# What travels to the controller in fewer bits.
_MOST_OF: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(
            ("nodes_min", "nodes_max", "processes_per_node", "replica_nodes"), 2**31 - 1
        ),
        **dict.fromkeys(("restarts_max", "rank", "exit_code", "signal"), 2**31 - 1),
        "free_port": 65535,
        "job_id": 2**63 - 1,  # nanoseconds since 1970
    }
)
_LEAST_OF: Mapping[str, int] = MappingProxyType({"exit_code": -(2**31)})


def job_problem(name: str) -> str | None:
    """Return what is wrong with the name of a job, or None."""
    if _JOB.fullmatch(name):
        return None
    return "a job needs a name of 1 to 200 letters, digits, '.', '_' and '-'; see everstep run"


def number_problem(message: object) -> str | None:
    """Return which number of a message cannot be worked with, or None."""
    for field in fields(message):  # type: ignore[arg-type]  # every message is a dataclass
        value = getattr(message, field.name)
        if type(value) is not int:
            continue
        least, most = _LEAST_OF.get(field.name, 0), _MOST_OF.get(field.name, _MOST)
        if not least <= value <= most:
            return f"{field.name} is {value}, which is not from {least} to {most}"
    return None
