"""Saved log report: the findings in a log as text for a terminal and as JSON."""

from collections.abc import Iterable

from everstep_agent.commands.log_files import LogFile
from everstep_agent.detectors.kernel.logs.log_reading import (
    LogReading,
    Places,
    ToldFinding,
    ToldXid,
)
from everstep_common.judging.findings import Severity, SuggestedAction
from everstep_common.printable import printable

_SEVERITIES = list(Severity)
_ACTIONS = list(SuggestedAction)


def report_as_json(file: LogFile, reading: LogReading) -> dict[str, object]:
    """Return the report as ``--help`` documents it."""
    worst = reading.worst()
    return {
        "file": file.name,
        "lines": reading.lines,
        "driver": reading.driver,
        "torn": file.torn,
        "foreign_lines": reading.foreign,
        "worst": worst.value if worst else None,
        "findings": [_finding(told) for told in _sorted(reading)],
        "xids": [_xid(told) for told in reading.xids.values()],
    }


def _finding(told: ToldFinding) -> dict[str, object]:
    finding = told.finding
    return {
        "component": finding.component,
        "condition": finding.condition,
        "severity": finding.severity.value,
        "message": finding.message,
        "suggested_action": finding.suggested_action.value,
        "rule": finding.rule,
        "evidence": finding.evidence,
        "injected": finding.injected,
        **_places(told.places),
        "ended_line": told.ended_line,
        "host": told.host,
    }


def _xid(told: ToldXid) -> dict[str, object]:
    what = {"code": told.code, "name": told.name, "gpu": told.gpu, "host": told.host}
    return {**what, **_places(told.places)}


def _places(places: Places) -> dict[str, object]:
    return {
        "line": places.line,
        "time": places.time,
        "last_line": places.last_line,
        "last_time": places.last_time,
        "count": places.count,
    }


def report_as_text(file: LogFile, reading: LogReading) -> str:
    """Return the report for a terminal."""
    found = _sorted(reading)
    # In a log of a single node its name is left out.
    several = len(reading.hosts) > 1
    paragraphs = ["\n".join(_paragraph(told, several)) for told in found]
    if others := list(_other_xids(reading)):
        paragraphs.append("Xids that are no finding:\n" + "\n".join(others))
    overview = "\n".join(_overview(found, several))
    parts = [overview] if len(found) > 1 and overview else []
    return "\n\n".join([*parts, *paragraphs, _summary(file, reading, found)])


def _overview(found: Iterable[ToldFinding], several: bool) -> Iterable[str]:
    """Yield one line for each device that has more than a remark: what to do about it."""
    devices: dict[tuple[str, str], list[ToldFinding]] = {}
    for told in found:
        if told.ended_line is None and told.finding.severity is not Severity.INFO:
            devices.setdefault((told.host, told.finding.component), []).append(told)
    for (host, component), of_it in devices.items():
        worst = max((told.finding.severity for told in of_it), key=_SEVERITIES.index)
        action = max((told.finding.suggested_action for told in of_it), key=_ACTIONS.index)
        why = ", ".join(f"{told.finding.condition} line {told.places.line}" for told in of_it)
        name = f"{printable(host)}: " if several and host else ""
        yield f"{worst.value.upper():<8}  {name}{printable(component)}: {action.value} ({why})"


def _paragraph(told: ToldFinding, several: bool) -> Iterable[str]:
    finding, places = told.finding, told.places
    host = f"{printable(told.host)}: " if several and told.host else ""
    yield f"{finding.severity.value.upper():<8}  {host}{printable(finding.message)}"
    where = f"line {places.line}" + (f", {printable(places.time)}" if places.time else "")
    if places.count > 1:
        where += f"; {places.count} times, last in line {places.last_line}"
    yield f"          {where}"
    yield f"          {printable(finding.component)}: {finding.condition}"
    yield f"          do: {finding.suggested_action.value}; decided by: {finding.rule}"
    if finding.injected:
        yield "          a process wrote this line, not the kernel"
    if told.ended_line is not None:
        yield f"          over: see line {told.ended_line}"
    yield f"          | {printable(finding.evidence)}"


def _other_xids(reading: LogReading) -> Iterable[str]:
    found = {(host, key.component, code) for host, key, code in reading.findings}
    several = len(reading.hosts) > 1
    for told in reading.xids.values():
        known = (told.host, f"gpu/{told.gpu}", told.code) in found
        if not known and told.code not in (154, 162, 163):
            host = f"{printable(told.host)}: " if several and told.host else ""
            places = told.places
            times = f"{places.count} times, lines {places.line} to {places.last_line}"
            where = times if places.count > 1 else f"line {places.line}"
            yield f"  {host}Xid {told.code} of GPU {told.gpu}, {told.name or 'unknown'}: {where}"


def _summary(file: LogFile, reading: LogReading, found: list[ToldFinding]) -> str:
    counts = [
        f"{number} {severity.value}"
        for severity in reversed(_SEVERITIES)
        if (number := sum(told.finding.severity is severity for told in found))
    ]
    name = "standard input" if file.name == "-" else file.name
    what = f"{', '.join(counts)} found" if counts else "nothing found"
    driver = f" (NVIDIA driver {reading.driver})" if reading.driver else ""
    text = f"{what} in {reading.lines} lines of {name}{driver}"
    if reading.foreign:
        text += f"; {reading.foreign} lines of other programs that quote the kernel were left out"
    if reading.dropped:
        text += f"; {reading.dropped} more lines with other findings were not kept"
    return text


def _sorted(reading: LogReading) -> list[ToldFinding]:
    def rank(told: ToldFinding) -> tuple[bool, int, int]:
        over = told.ended_line is not None
        return over, -_SEVERITIES.index(told.finding.severity), told.places.line

    return sorted(reading.findings.values(), key=rank)
