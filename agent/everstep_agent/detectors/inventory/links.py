"""Inventory detector for links: by name where names are expected, else by kind, rate and count."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.inventory.expected import ExpectedLinks
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import FindingKey, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement, Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLink:
    """A link of the node."""

    name: str
    kind: str
    up: bool | None
    bits_per_s: int = 0


def judge_links(
    expected: Sequence[ExpectedLinks], seen: Sequence[SeenLink] | None
) -> Iterator[Judgement]:
    """Compare; None: the links were not read."""
    for kind in dict.fromkeys(links.kind for links in expected):
        of_kind = [links for links in expected if links.kind == kind]
        if any(links.names for links in of_kind):
            yield from _judge_names(kind, of_kind, seen)
            yield _judge_unexpected(kind, of_kind, seen)
        else:
            yield _judge_count(kind, of_kind, seen)


def _judge_names(
    kind: str, expected: Sequence[ExpectedLinks], seen: Sequence[SeenLink] | None
) -> Iterator[Judgement]:
    rates = {name: links.rate_gbit_per_s for links in expected for name in links.names}
    by_name = {link.name: link for link in seen or ()}
    found = by_name.keys() & rates.keys()
    evidence = f"{len(found)} of {len(rates)} are there"
    if seen is None:
        yield Unknown(FindingKey(f"links/{kind}", "LinkMissing"), "the links were not read")
    else:
        # One finding for a class that is gone, not one for each port: it has one cause.
        yield _missing(f"links/{kind}", kind, evidence, not found)
    for name, rate in rates.items():
        if not found:
            why = "no link of the kind can be read"
            yield Unknown(FindingKey(f"link/{name}", "LinkMissing"), why)
        else:
            yield _missing(f"link/{name}", kind, f"{name}; {evidence}", name not in found)
        link = by_name.get(name)
        if link is not None and link.up and rate:
            yield _judge_rate(rate, link)


def _judge_rate(least_gbit_per_s: float, link: SeenLink) -> Judgement:
    rate = link.bits_per_s / 1e9
    message = f"link {link.name} runs at {rate:g} Gbit/s, expected {least_gbit_per_s:g}"
    slow = bool(link.bits_per_s) and rate < least_gbit_per_s
    fault = Fault(
        message=message,
        rule="rate of the inventory",
        action=SuggestedAction.REPAIR_HARDWARE,
    )
    component = f"link/{link.name}"
    return judged(component, "LinkBelowExpectedRate", f"{rate:g} Gbit/s", fault if slow else None)


def _judge_count(
    kind: str, wanted: Sequence[ExpectedLinks], seen: Sequence[SeenLink] | None
) -> Judgement:
    """Judge whether enough links of a kind are up at each rate; a faster one serves as well."""
    component = f"links/{kind}"
    if seen is None:
        return Unknown(FindingKey(component, "LinkMissing"), "the links were not read")
    up = [link.bits_per_s / 1e9 for link in seen if link.kind == kind and link.up]
    for rate in sorted({links.rate_gbit_per_s for links in wanted}, reverse=True):
        count = sum(links.count for links in wanted if links.rate_gbit_per_s >= rate)
        found = sum(one >= rate for one in up)
        if found < count:
            at = f" at {rate:g} Gbit/s or more" if rate else ""
            return _missing(component, kind, f"{found} of {count} are up{at}", True)
    return _missing(component, kind, f"{len(up)} are up", False)


def _missing(component: str, kind: str, evidence: str, missing: bool) -> Judgement:
    rdma = kind != "ethernet"
    fault = Fault(
        message=f"{kind} links are missing: {evidence}",
        rule="links of the inventory",
        # A port that carries RDMA traffic is one rail of the job: training stops without it.
        severity=Severity.FATAL if rdma else Severity.DEGRADED,
        action=SuggestedAction.REPAIR_HARDWARE,
    )
    return judged(component, "LinkMissing", evidence, fault if missing else None)


def _judge_unexpected(
    kind: str, expected: Sequence[ExpectedLinks], seen: Sequence[SeenLink] | None
) -> Judgement:
    component = f"links/{kind}"
    if seen is None:
        return Unknown(FindingKey(component, "DeviceUnexpected"), "the links were not read")
    named = {name for links in expected for name in links.names}
    # An interface that nobody uses is no news; one that carries traffic unnamed is.
    strangers = [one.name for one in seen if one.kind == kind and one.up and one.name not in named]
    fault = Fault(
        message=f"{kind} links are up that are not expected: {', '.join(strangers)}",
        rule="links of the inventory",
        severity=Severity.INFO,
        action=SuggestedAction.NONE,
    )
    return judged(
        component, "DeviceUnexpected", f"{len(strangers)} others", fault if strangers else None
    )
