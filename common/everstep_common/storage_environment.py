"""Storage environment: the variables with which a job's user is let into a bucket. Pure."""

import re
from collections.abc import Mapping

# What lets a user into a bucket travels with the job: the agent has no rights of its own there.
# Nothing else does: the loader and the interpreter obey LD_… and PYTHON….
_NAME = re.compile(r"AWS_[A-Z0-9_]{1,100}|HOME|HTTPS?_PROXY|NO_PROXY")
VARIABLES_MAX = 64
# A session token has about a thousand characters, a list of hosts without a proxy a few thousand.
_VALUE_BYTES_MAX = 16 * 1024
_EXPECTED = "expected AWS_…, HOME, HTTP_PROXY, HTTPS_PROXY or NO_PROXY"


def credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what of a user's environment goes with a job whose storage is a bucket."""
    found = {name: value for name, value in environ.items() if not variable_problem(name, value)}
    return dict(sorted(found.items())[:VARIABLES_MAX])


def environment_problem(environment: Mapping[str, str]) -> str:
    """Return what is wrong with the variables that a launcher sends; "" when nothing is."""
    if len(environment) > VARIABLES_MAX:
        return f"environment: {len(environment)} variables are more than {VARIABLES_MAX}"
    problems = (variable_problem(name, value) for name, value in environment.items())
    return next((f"environment: {problem}" for problem in problems if problem), "")


def variable_problem(name: str, value: str) -> str:
    """Return why a variable cannot go with a job; a value is a secret, and is not repeated."""
    if not _NAME.fullmatch(name.upper()) or not name.isascii():
        return f"{name!r:.80}: {_EXPECTED}"
    try:
        size = len(value.encode(errors="surrogateescape"))
    except UnicodeEncodeError:
        return f"{name}: its value is no text"
    if "\0" in value or size > _VALUE_BYTES_MAX:
        return f"{name}: expected at most {_VALUE_BYTES_MAX} bytes without NUL"
    return ""
