"""Health report output: as a table, as JSON, and as one line for Nagios."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from everstep_agent.health.report import REPORT_VERSION, HealthReport, Held, Unread
from everstep_common.printable import printable

_WIDTHS = (8, 24, 24)
_LINE_MAX = 1000


def as_text(report: HealthReport) -> str:
    """Return a short table, worst first."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: HealthReport) -> Iterator[str]:
    about = f" ({', '.join(report.groups)})" if report.groups else ""
    yield printable(f"{report.node}: {report.status.name}{about}, {_who(report)}")
    for held in report.findings:
        found = held.finding
        words = (found.severity.value, found.component, found.condition)
        columns = zip(words, _WIDTHS, strict=True)
        row = "  ".join(text.ljust(width) for text, width in columns)
        yield printable(f"{row}  {found.message}{_mark(held)}; do: {found.suggested_action.value}")
    for name, entries in (("unread", report.unread), ("blind", report.blind)):
        for one in entries:
            yield printable(f"{name.ljust(_WIDTHS[0])}  {one.probe.ljust(_WIDTHS[1])}  {one.why}")
    if report.not_judged:
        names = ", ".join(one.probe for one in report.not_judged)
        yield printable(f"not judged, as they have to be watched for longer: {names}")
    for note in report.notes:
        yield printable(f"{'note'.ljust(_WIDTHS[0])}  {note}")


def as_nagios(report: HealthReport) -> str:
    """Return one line: the status, the worst words, and counts as performance data."""
    told = [_sentence(held) for held in report.findings]
    told += [f"probe {one.probe}: {one.why}" for one in report.unread]
    rest = f" (+{len(told) - 1} more)" if len(told) > 1 else ""
    said = told[0] + rest if told else f"no fault is known, {_who(report)}"
    said = "; ".join((said, *(note for note in report.notes if note.startswith("PASSES"))))
    severities = [held.finding.severity.value for held in report.findings]
    counts = {name: severities.count(name) for name in ("fatal", "degraded")}
    counts |= {"unread": len(report.unread), "blind": len(report.blind)}
    numbers = " ".join(f"{name}={count}" for name, count in counts.items())
    # Everything after a bar is performance data; what a kernel line says must not forge it.
    text = printable(said).replace("|", "/")[:_LINE_MAX]
    return f"EVERSTEP {report.status.name} - {text} | {numbers}\n"


def as_json(report: HealthReport) -> str:
    """Return the whole report; see docs/operations.md for its fields."""
    document = {
        "version": REPORT_VERSION,
        "node": report.node,
        "status": report.status.name,
        "exit_code": int(report.status),
        "asked": report.asked,
        "groups": list(report.groups),
        "findings": [_finding(held) for held in report.findings],
        "unread": [_unread(one) for one in report.unread],
        "blind": [_unread(one) for one in report.blind],
        "notes": list(report.notes),
        "not_judged": [_unread(one) for one in report.not_judged],
        "answered": list(report.answered),
        "fails_prolog": bool(report.failing and not report.kept_by_fleet),
    }
    return json.dumps(document, indent=2) + "\n"


def unknown(node: str, why: str) -> HealthReport:
    """Return the report of a check that did not come to an end."""
    return HealthReport(node=node, asked="probes", unread=(Unread("check", why),))


def _finding(held: Held) -> dict[str, object]:
    found = held.finding
    return {
        "component": found.component,
        "condition": found.condition,
        "severity": found.severity.value,
        "message": found.message,
        "evidence": found.evidence,
        "suggested_action": found.suggested_action.value,
        "rule": found.rule,
        "mode": found.mode.value,
        "injected": found.injected,
        "since": datetime.fromtimestamp(held.since_ns / 1e9, UTC).isoformat(timespec="seconds"),
    }


def _unread(one: Unread) -> dict[str, str]:
    return {"probe": one.probe, "why": one.why}


def _sentence(held: Held) -> str:
    found = held.finding
    return f"{found.condition} on {found.component}: {found.message}{_mark(held)}"


def _mark(held: Held) -> str:
    return " [injected]" if held.finding.injected else ""


def _who(report: HealthReport) -> str:
    who = "says the running agent" if report.asked == "agent" else "by a look of its own"
    return f"{who} ({', '.join(report.answered)} answer)" if report.answered else who
