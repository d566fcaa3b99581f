"""Causes of findings: those that differ in the device or node only are one line."""

import re
from collections.abc import Iterable, Sequence

from everstep_cli.views import formatting
from everstep_proto.generated import admin_pb2

_NAMED_MAX = 4
_NODES_WIDTH_MAX = 32
# The number after these says what happened, and not where or how often.
_KINDS = ("xid", "sxid", "code", "error", "signal")
_HAS_DIGIT = re.compile(r"\S*\d\S*")

Cause = tuple[object, ...]


def by_cause(
    findings: Iterable[admin_pb2.FindingLine],
) -> list[list[admin_pb2.FindingLine]]:
    """Return findings by their cause, in the order of the first of each."""
    groups: dict[Cause, list[admin_pb2.FindingLine]] = {}
    for finding in findings:
        groups.setdefault(_cause(finding), []).append(finding)
    return list(groups.values())


def nodes_of(findings: Sequence[admin_pb2.FindingLine]) -> str:
    """Return the nodes of findings, folded; how many, where that is long."""
    nodes = sorted({one.node for one in findings}, key=_by_number)
    folded = formatting.names(nodes)
    return folded if len(folded) <= _NODES_WIDTH_MAX else formatting.count(len(nodes), "node")


def components_of(findings: Sequence[admin_pb2.FindingLine]) -> str:
    """Return the components of findings, the first ones by name."""
    names = list(dict.fromkeys(one.component for one in findings))
    more = f", and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return "\n".join(names[:_NAMED_MAX]) + more


def _by_number(name: str) -> tuple[str, int, str]:
    """Return what sorts node-2 before node-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1), name


def _cause(finding: admin_pb2.FindingLine) -> Cause:
    kind, _, device = finding.component.partition("/")
    return (
        finding.condition,
        finding.severity,
        finding.owner,
        finding.mode,
        finding.suggested_action,
        finding.injected,
        kind,
        _said(finding.message, finding.node, device),
    )


def _said(sentence: str, *names: str) -> str:
    """Return a sentence without these names, and without numbers and addresses."""
    said = sentence.split()
    before = ["", *said]
    plain = " ".join(
        word if last.lower().strip("(,:") in _KINDS else _HAS_DIGIT.sub("#", word)
        for last, word in zip(before, said, strict=False)
    )
    for name in filter(None, names):
        plain = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "#", plain)
    return plain


def runs_of_events(events: Iterable[admin_pb2.Event]) -> list[list[admin_pb2.Event]]:
    """Return events in their order; those of findings of one cause that follow each other together.

    All other events are decisions, and each stands alone.
    """
    runs: list[list[admin_pb2.Event]] = []
    for event in events:
        if runs and _is_of_finding(event) and _told(event) == _told(runs[-1][-1]):
            runs[-1].append(event)
        else:
            runs.append([event])
    return runs


def _is_of_finding(event: admin_pb2.Event) -> bool:
    condition = event.reason.removesuffix("Cleared")
    begins = (f"{condition} is over on ", "fatal on ", "degraded on ", "info on ")
    return event.message.startswith(begins)


def _told(event: admin_pb2.Event) -> tuple[str, str, str]:
    return event.subject, event.reason, _said(event.message, event.subject)
