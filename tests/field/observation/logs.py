"""Logs of all machines: warnings of the daemons and of the SDK, and the traces of crashes."""

import re
from collections.abc import Iterator, Mapping

from field.invariants.call_sites import find_job_site
from field.machines.fleet import Fleet
from field.observation.records import LogLine

DAEMONS = ("everstep-agent.service", "everstep-controller.service")
_WARNING = 4
_OWN_FRAME = r'File "[^"]*/everstep(_[a-z]+)?/[^"]*", line'
_CRASHES = r"Traceback \(most recent call last\)|Operation not permitted|EPERM"
CRASH = re.compile(rf"{_CRASHES}|{_OWN_FRAME}")
# A rank whose peer was killed may die of that; the traces of Everstep in it may not, and what a
# launcher says of itself may not either: each of its lines begins with its name.
_CRASH_IN_A_JOB = re.compile(rf"{_OWN_FRAME}|^everstep: .*({_CRASHES}|PermissionError)", re.DOTALL)


def read_logs(fleet: Fleet, started_us: int) -> list[LogLine]:
    """Return the lines that must have a reason, oldest first."""
    lines = [line for name in fleet.site.names for line in _of(fleet, name, started_us)]
    return sorted(lines, key=lambda line: line.at_s)


def _of(fleet: Fleet, name: str, started_us: int) -> Iterator[LogLine]:
    for entry in fleet.machine(name).journal():
        line = log_line(name, entry, started_us)
        if line is not None:
            yield line


def log_line(node: str, entry: Mapping[str, object], started_us: int) -> LogLine | None:
    """Return an entry of the journal that must have a reason; None for any other."""
    unit = str(entry.get("_SYSTEMD_UNIT", ""))
    text = _text(entry.get("MESSAGE"))
    level = int(str(entry.get("PRIORITY", 6)))
    daemon = unit in DAEMONS
    if not daemon and not unit.startswith("job-"):
        return None
    crash = CRASH if daemon else _CRASH_IN_A_JOB
    # Whatever a job writes has the level of its unit.
    warns = level <= _WARNING if daemon else find_job_site(text) is not None
    if not (warns or crash.search(text)):
        return None
    at_s = (int(str(entry["__REALTIME_TIMESTAMP"])) - started_us) / 1e6
    return LogLine(round(at_s, 3), node, unit, level, text[:2000])


def _text(message: object) -> str:
    """Return a message; journald gives one that is no text as a list of bytes."""
    if isinstance(message, list):
        return bytes(message).decode(errors="replace")
    return str(message or "")
