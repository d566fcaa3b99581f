"""Extras: the command that adds one to the Everstep that runs."""

import shlex
import sys


def install_line(extra: str) -> str:
    """Return the command that adds an extra to this installation.

    It names the interpreter: pip of another environment would look for the name in a package index,
    where it may be somebody else's.
    """
    return f"{shlex.quote(sys.executable)} -m pip install 'everstep[{extra}]'"
