"""Tracebacks: the chain of exceptions in the last lines of a process's output."""

import re
from collections.abc import Iterator, Sequence

# How much of a line is read: it may be a mebibyte long, and an exception's name stands in front.
LINE_CHARACTERS_MAX = 400

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
# torch writes "[rank3]: " before every line of a traceback once a process group exists, and
# exception groups draw a margin.
_PREFIX = re.compile(r"^(?:\[rank\d+\]:(?: |$))?(?: *[|+] ?)?")
_HEADER = re.compile(r"^(?:Exception Group )?Traceback \(most recent call last\):")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: |$)")
# A line that names an exception, recognised without the head of its traceback.
_CALLED = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Iteration)(?:: |$)"
)
CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_CPP = re.compile(r"terminate called after throwing an instance of '([^']+)'")
_WHAT = re.compile(r"^\s*what\(\):\s+(.*)")


def uncoloured(text: str) -> str:
    """Return a text without what would steer a terminal: colours, titles, places of the cursor."""
    return _ANSI.sub("", text)


def plain(line: str) -> str:
    """Return a line as a person reads it: without colours and without an end."""
    return uncoloured(line[: 4 * LINE_CHARACTERS_MAX]).rstrip()[:LINE_CHARACTERS_MAX]


def last_chain(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last exception and what caused it, each as one line, the last one last.

    An older traceback that the process lived through is not part of it.
    """
    chain: list[str] = []
    chained = False
    for line in _told(lines):
        if line in CHAINED:
            chained = True
            continue
        if not chained:
            chain.clear()
        chain.append(line)
        chained = False
    return tuple(chain)


def _told(lines: Sequence[str]) -> Iterator[str]:
    """Yield exceptions, and the sentences that tie one to the next."""
    inside = after_frame = False
    thrown = ""
    for line in (_PREFIX.sub("", plain(line), count=1) for line in lines):
        if _HEADER.match(line):
            inside = True
        elif line in CHAINED:
            yield line
        elif line.startswith(" ") and not thrown:
            after_frame = True
        elif (inside or after_frame) and (_EXCEPTION if inside else _CALLED).match(line):
            yield line
            inside = after_frame = False
        elif found := _CPP.search(line):
            thrown = found[1]
        elif thrown and (found := _WHAT.match(line)):
            yield f"{thrown}: {found[1]}"
            thrown = ""
        else:
            after_frame = False
