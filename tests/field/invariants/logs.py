"""Invariants of logs: each warning has a finding or a reason, and nothing crashed."""

import re
from collections.abc import Sequence

from field.invariants.call_sites import CallSite, Known, find_job_site, find_site
from field.invariants.violations import Violation, explained, explains
from field.observation.logs import CRASH, DAEMONS
from field.observation.records import Excuse, LogLine, Round

# Conditions that say that Everstep itself is broken: no fault of the field explains one.
OWN_FAILURES = frozenset(
    {"EventRejected", "JudgeFailed", "OrderRejected", "RecordRejected", "TaskFailed"}
)
_AGENT = "everstep-agent.service"
# While the files of an installation are replaced in place some are not there for a moment.
_FILES_MISSING = re.compile(r"Failed at step EXEC spawning /opt/everstep/|ModuleNotFoundError")
# A finding may open a while before or after the words.
_NEAR_S = 120.0


def warnings_have_a_reason(round_: Round) -> Sequence[Violation]:
    """What a daemon warns of is a finding, or what a fault explains, or is known to need none."""
    found = []
    for line in round_.lines:
        if CRASH.search(line.text) or _is_of_upgrade(round_, line.at_s, line.text):
            continue
        site = find_site(line.text) if line.unit in DAEMONS else find_job_site(line.text)
        if not _accounted(round_, line, site):
            found.append(Violation(line.at_s, line.node, f"{line.unit}: {line.text}"))
    return found


def nothing_crashed(round_: Round) -> Sequence[Violation]:
    """No log of a daemon or of a job has a trace of Everstep, or a call that the kernel refused.

    While its files are replaced an agent may start a program of which some are not there.
    """
    return [
        Violation(line.at_s, line.node, f"{line.unit}: {line.text}")
        for line in round_.lines
        if CRASH.search(line.text)
        and not (line.unit == _AGENT and explained(round_, Excuse.TRACE, line.at_s, (line.node,)))
    ]


def nothing_of_ours_failed(round_: Round) -> Sequence[Violation]:
    """No judge, task, order or event of Everstep's own is told as broken."""
    told = [(one.at_s, one.node, one.condition, one.message) for one in round_.findings]
    told += [(one.at_s, one.subject, one.reason, one.message) for one in round_.events]
    # A finding of a judge says what is not known, and its event why.
    excused = {
        condition for at_s, _, condition, message in told if _is_of_upgrade(round_, at_s, message)
    }
    # A finding that stays open is seen again and again.
    first: dict[tuple[str, str], Violation] = {}
    for at_s, subject, condition, message in told:
        if condition in OWN_FAILURES and not (
            condition in excused and explained_anywhere(round_, Excuse.TRACE, at_s)
        ):
            violation = Violation(at_s, subject, f"{condition}: {message}")
            first.setdefault((subject, condition), violation)
    return list(first.values())


def _is_of_upgrade(round_: Round, at_s: float, text: str) -> bool:
    """Return whether somebody was replacing the files of which some were not there."""
    missing = bool(_FILES_MISSING.search(text))
    return missing and explained_anywhere(round_, Excuse.TRACE, at_s)


def explained_anywhere(round_: Round, excuse: Excuse, at_s: float) -> bool:
    """Return whether any fault, wherever it was, explains something at that time."""
    return any(explains(one, excuse, at_s, one.nodes) for one in round_.faults)


def words_explained(round_: Round, at_s: float) -> bool:
    """Return whether any fault, wherever it was, explains warnings at that time."""
    return explained_anywhere(round_, Excuse.WORDS, at_s)


def _fault_explains(round_: Round, line: LogLine) -> bool:
    """Return whether a fault explains a warning: what a job says, one of its own machines."""
    job = line.unit.removeprefix("job-").removesuffix(".service")
    for one in round_.results:
        if line.unit not in DAEMONS and one.job == job:
            return explained(round_, Excuse.WORDS, line.at_s, one.nodes, job)
    return words_explained(round_, line.at_s)


def _accounted(round_: Round, line: LogLine, site: CallSite | None) -> bool:
    if site is None:
        return False
    if site.known is Known.FINDING:
        opened = [(one.condition, one.at_s) for one in round_.findings]
        # One that is over soon is seen in the list of events alone.
        opened += [(one.reason, one.at_s) for one in round_.events]
        return any(
            name in site.conditions and abs(at_s - line.at_s) <= _NEAR_S for name, at_s in opened
        )
    if site.known is Known.FAULT:
        return _fault_explains(round_, line)
    return site.known is Known.REASON
