"""Saved log report: the findings in a log as text for a terminal and as JSON."""

from collections.abc import Iterable, Iterator, Sequence

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
# Up to this many components with the same word are shown each; of more, the first and a count.
_SHOWN_ALIKE = 3
_NAMED = 8


def report_as_json(file: LogFile, reading: LogReading) -> dict[str, object]:
    """Return the report as ``--help`` documents it."""
    worst = reading.worst()
    return {
        "file": file.name,
        "lines": reading.lines,
        "kernel_lines": reading.kernel_lines,
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
    return {**what, "caused_by": told.cause, **_places(told.places)}


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
    paragraphs = ["\n".join(_paragraphs(alike, several)) for alike in _alike(found)]
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
    groups: dict[tuple[object, ...], list[tuple[str, str]]] = {}
    for (host, component), of_it in devices.items():
        worst = max((told.finding.severity for told in of_it), key=_SEVERITIES.index)
        action = max((told.finding.suggested_action for told in of_it), key=_ACTIONS.index)
        why = ", ".join(f"{told.finding.condition} line {told.places.line}" for told in of_it)
        name = f"{printable(host)}: " if several and host else ""
        whose = f"{worst.value.upper():<8}  {name}{printable(component)}"
        what = (worst, action, *((told.finding.condition, told.finding.rule) for told in of_it))
        groups.setdefault(what, []).append((whose, f": {action.value} ({why})"))
    for alike in groups.values():
        if len(alike) <= _SHOWN_ALIKE:
            yield from (whose + why for whose, why in alike)
        else:
            whose, why = alike[0]
            yield f"{whose} and {len(alike) - 1} others after it{why}"


def _alike(found: Iterable[ToldFinding]) -> Iterator[list[ToldFinding]]:
    """Yield findings that say the same of more than a few components together, first one first.

    An error of a rack's NVLink fabric is told by each of its GPUs; the first is where it began.
    """
    groups: dict[tuple[object, ...], list[ToldFinding]] = {}
    for told in found:
        one = told.finding
        what = (one.condition, one.rule, one.severity, one.suggested_action)
        groups.setdefault((*what, told.ended_line is None), []).append(told)
    for alike in groups.values():
        if len(alike) > _SHOWN_ALIKE:
            yield alike
        else:
            yield from ([told] for told in alike)


def _paragraphs(alike: Sequence[ToldFinding], several: bool) -> Iterable[str]:
    yield from _paragraph(alike[0], several)
    if len(alike) > 1:
        names = [_whose(told, several) for told in alike[1:]]
        more = f" and {len(names) - _NAMED}" if len(names) > _NAMED else ""
        places = [told.places for told in alike]
        last = max(place.last_line for place in places)
        yield f"          the same of {len(names)} others, up to line {last}:"
        yield f"          {', '.join(names[:_NAMED])}{more}"


def _whose(told: ToldFinding, several: bool) -> str:
    host = f"{printable(told.host)}: " if several and told.host else ""
    return f"{host}{printable(told.finding.component)}"


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
    yield from _victims(reading)
    for told in reading.xids.values():
        if told.cause is not None:
            continue
        known = (told.host, f"gpu/{told.gpu}", told.code) in found
        if not known and told.code not in (154, 162, 163):
            host = f"{printable(told.host)}: " if several and told.host else ""
            places = told.places
            times = f"{places.count} times, lines {places.line} to {places.last_line}"
            where = times if places.count > 1 else f"line {places.line}"
            yield f"  {host}Xid {told.code} of GPU {told.gpu}, {told.name or 'unknown'}: {where}"


def _victims(reading: LogReading) -> Iterable[str]:
    """Yield one line for each Xid that the driver says others followed, with their number."""
    followed: dict[tuple[int, int], list[ToldXid]] = {}
    for told in reading.xids.values():
        if told.cause is not None:
            followed.setdefault((told.cause, told.code), []).append(told)
    for (cause, code), victims in followed.items():
        times = sum(told.places.count for told in victims)
        gpus = len({(told.host, told.gpu) for told in victims})
        begun = [one.places.line for one in reading.xids.values() if one.code == cause]
        where = f"line {min(begun)}" if begun else "not in this log"
        yield (
            f"  Xid {code}, {times} times on {gpus} GPUs: follows Xid {cause} ({where}),"
            f" first in line {min(told.places.line for told in victims)}"
        )


def _summary(file: LogFile, reading: LogReading, found: list[ToldFinding]) -> str:
    counts = [
        f"{number} {severity.value}"
        for severity in reversed(_SEVERITIES)
        if (number := sum(told.finding.severity is severity for told in found))
    ]
    what = f"{', '.join(counts)} found" if counts else "nothing found"
    driver = f" (NVIDIA driver {reading.driver})" if reading.driver else ""
    text = f"{what} in {reading.lines} lines of {shown_name(file)}{driver}"
    if reading.kernel_lines < reading.lines:
        text += f", of which {reading.kernel_lines} were read as messages of the kernel"
    if reading.foreign:
        text += f"; {reading.foreign} lines of other programs that quote the kernel were left out"
    if reading.dropped:
        text += f"; {reading.dropped} more lines with other findings were not kept"
    return text


def shown_name(file: LogFile) -> str:
    """Return what the log is called to a person."""
    return "standard input" if file.name == "-" else file.name


def _sorted(reading: LogReading) -> list[ToldFinding]:
    def rank(told: ToldFinding) -> tuple[bool, int, int]:
        over = told.ended_line is not None
        return over, -_SEVERITIES.index(told.finding.severity), told.places.line

    return sorted(reading.findings.values(), key=rank)
