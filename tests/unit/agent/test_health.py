"""What a check answers: which findings belong to a group, which exit code, which words."""

import json

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.conditions import GROUPS as TITLED
from everstep_agent.detectors.kernel import KernelLine
from everstep_agent.health.groups import GROUPS, groups_of, problems_of, sources_for
from everstep_agent.health.kernel_log_since_boot import KernelLogSinceBoot, judge_quiet
from everstep_agent.health.rendering import as_json, as_nagios, as_text
from everstep_agent.health.report import (
    BudgetAnswer,
    HealthReport,
    Known,
    Status,
    Unread,
    decode,
    encode,
    prolog_code,
    report_on,
)
from everstep_agent.probes.kernel.kernel_log import KernelBatch, Position
from everstep_agent.sources.source import ProbeResult
from everstep_common.clock import Stamp
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity

_PROBES = {"nvml": "gpu", "network": "net", "kernel_log": "kernel", "disks": "disk"}
_SINCE = Stamp("boot-1", 10**9, 1_767_225_600 * 10**9)


def _finding(
    component: str = "gpu/0000:3b:00.0",
    condition: str = "XidFatal",
    severity: Severity = Severity.FATAL,
    mode: Mode = Mode.ENFORCE,
) -> Finding:
    return Finding(
        component=component,
        condition=condition,
        severity=severity,
        message=f"something is wrong with {component}",
        mode=mode,
    )


def _report(
    *findings: Finding, looks: tuple[ProbeResult, ...] = (), groups: tuple[str, ...] = ()
) -> HealthReport:
    held = [BookEntry(finding, _SINCE) for finding in findings]
    known = Known(node="n", asked="agent", findings=held, looks=looks, probes=_PROBES)
    return report_on(known, groups)


_DEGRADED = _finding(severity=Severity.DEGRADED)
_OBSERVED = _finding(mode=Mode.OBSERVE)
_HANG = _finding("probe/nvml", "ProbeHang", Severity.DEGRADED)
_FAILED = _finding("probe/kernel_log", "ProbeFailed", Severity.DEGRADED)
_UNREAD = ProbeResult("disks", trouble="no answer within 5 s")
_DENIED = ProbeResult("kernel_log", denied="reading it takes the capability CAP_SYSLOG")


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (_report(), Status.OK),
        (_report(_finding(severity=Severity.INFO)), Status.OK),
        (_report(_DEGRADED), Status.WARNING),
        (_report(_OBSERVED), Status.WARNING),
        (_report(_finding()), Status.CRITICAL),
        (_report(_finding(), looks=(_UNREAD,)), Status.CRITICAL),
        (_report(_DEGRADED, looks=(_UNREAD,)), Status.UNKNOWN),
        (_report(_HANG), Status.UNKNOWN),
        # Whoever may not read a source has not found the node to be worse.
        (_report(looks=(_DENIED,)), Status.OK),
        (_report(_FAILED, looks=(_DENIED,)), Status.OK),
        (_report(_FAILED), Status.UNKNOWN),
    ],
)
def test_the_status_is_the_worst_of_what_is_known(report: HealthReport, status: Status) -> None:
    assert report.status is status


@pytest.mark.parametrize(
    ("component", "condition", "groups"),
    [
        ("gpu/0000:3b:00.0", "GpuLost", {"gpu", "inventory"}),
        ("driver/nvidia", "GpuCountMismatch", {"gpu", "inventory"}),
        ("gpu/0000:3b:00.0", "XidFatal", {"gpu", "kernel"}),
        ("driver/nvidia", "DriverHang", {"gpu"}),
        ("link/mlx5_0/1", "LinkDown", {"ib"}),
        ("link/eth0", "LinkDown", {"net"}),
        ("links/infiniband", "LinkMissing", {"ib", "inventory"}),
        ("disk//scratch", "DiskMissing", {"disk", "inventory"}),
        ("memory", "MemoryLow", {"host"}),
        ("service/slurmd", "ServiceDown", {"services"}),
        ("probe/nvml", "ProbeHang", {"gpu"}),
        ("accelerator/amd-0000:03:00.0", "AcceleratorLost", {"accelerators"}),
    ],
)
def test_a_finding_belongs_to_the_group_of_its_component(
    component: str, condition: str, groups: set[str]
) -> None:
    assert groups_of(FindingKey(component, condition), _PROBES) == groups


def test_every_condition_belongs_to_a_group_that_can_be_asked_for() -> None:
    for conditions in TITLED.values():
        for condition in conditions:
            assert groups_of(FindingKey(condition.component, condition.name), {}) <= set(GROUPS)


def test_who_asks_for_gpus_hears_of_gpus_and_of_the_kernel_lines_about_them() -> None:
    link = _finding("link/mlx5_0/1", "LinkDown")
    report = _report(_finding(), link, looks=(_UNREAD, _DENIED), groups=("gpu",))
    assert [held.finding.condition for held in report.findings] == ["XidFatal"]
    assert report.unread == ()
    assert sources_for(["gpu"]) == {"gpu", "kernel"}
    assert sources_for([]) == set()


def test_an_unknown_group_is_told_with_the_known_ones() -> None:
    (problem,) = problems_of(["gpu", "disc"])
    assert problem.startswith("no group 'disc'; did you mean disk? known: gpu, ib,")


def test_the_worst_comes_first_in_every_form() -> None:
    report = _report(_DEGRADED, _finding("link/mlx5_0/1", "LinkDown"), looks=(_UNREAD, _DENIED))
    lines = as_text(report).splitlines()
    assert lines[0] == "n: CRITICAL, says the running agent"
    assert [line.split()[0] for line in lines[1:]] == ["fatal", "degraded", "unread", "blind"]
    line = as_nagios(report)
    assert line.startswith("EVERSTEP CRITICAL - LinkDown on link/mlx5_0/1: something is wrong")
    assert line.endswith("(+2 more) | fatal=1 degraded=1 unread=1 blind=1\n")
    document = json.loads(as_json(report))
    assert (document["status"], document["exit_code"]) == ("CRITICAL", 2)
    assert [one["condition"] for one in document["findings"]] == ["LinkDown", "XidFatal"]
    assert document["findings"][0]["since"] == "2026-01-01T00:00:00+00:00"


def test_what_was_injected_is_shown_as_such() -> None:
    finding = Finding(
        component="gpu/0000:3b:00.0",
        condition="XidFatal",
        severity=Severity.FATAL,
        message="Xid 79",
        injected=True,
    )
    report = _report(finding)
    assert "Xid 79 [injected]" in as_text(report)
    assert "Xid 79 [injected]" in as_nagios(report)
    assert json.loads(as_json(report))["findings"][0]["injected"] is True


def test_what_a_kernel_line_says_forges_no_performance_data_and_no_second_line() -> None:
    finding = Finding(
        component="gpu/x",
        condition="XidFatal",
        severity=Severity.FATAL,
        message="a|fatal=0\nOK\x1b[2J",
    )
    line = as_nagios(_report(finding))
    assert line.count("|") == 1
    assert line.count("\n") == 1
    assert "\x1b" not in line + as_text(_report(finding))


def test_a_report_comes_through_the_socket_as_it_was() -> None:
    report = _report(_finding(), looks=(_UNREAD, _DENIED))
    assert decode(encode(report)) == report


class _Log:
    """A kernel log with these lines, once."""

    def __init__(self, *lines: KernelLine) -> None:
        self._lines = lines

    @property
    def position(self) -> Position:
        return Position()

    def drain(self) -> KernelBatch:
        lines, self._lines = self._lines, ()
        return KernelBatch(lines)

    def descriptor(self) -> int | None:
        return None

    def has_news(self) -> bool:
        return False


def test_kernel_lines_are_handed_over_by_their_age() -> None:
    hour_ns = 3600 * 10**9
    ages = [KernelLine(f"{age} h ago", boot_ns=(9 - age) * hour_ns) for age in (8, 3, 0)]
    unknown = KernelLine("at any time")
    log = KernelLogSinceBoot(_Log(*ages, unknown), lambda: 9 * hour_ns)
    read = []
    for oldest_ns in (4 * hour_ns, hour_ns, 0, 0):
        log.oldest_ns = oldest_ns
        read.append([line.text for line in log.drain().lines])
    assert read == [["8 h ago"], ["3 h ago"], ["0 h ago", "at any time"], []]


def test_only_events_whose_time_is_over_are_over() -> None:
    event = next(one for one in CONDITIONS.values() if one.quiet_ns)
    lasting = next(one for one in CONDITIONS.values() if not one.quiet_ns)
    held = [BookEntry(_finding("x", one.name), _SINCE) for one in (event, lasting)]
    assert {one.key.condition for one in judge_quiet(held, event.quiet_ns, CONDITIONS)} == {
        event.name
    }
    assert judge_quiet(held, event.quiet_ns - 1, CONDITIONS) == []


@pytest.mark.parametrize("severity", list(Severity))
def test_a_finding_about_a_job_fails_no_check_and_is_told_to_no_other_user(
    severity: Severity,
) -> None:
    secret = Finding(
        component="job/llama/storage",
        condition="StorageFailing",
        severity=severity,
        message="its steps do not reach its storage",
        evidence="Permission denied: /home/alice/plans",
    )
    report = _report(secret)
    assert report.status is Status.OK
    assert "alice" not in encode(report)
    assert _report(secret, _DEGRADED).status is Status.WARNING


_ADVISED = _finding(mode=Mode.ADVISE)
_BLIND = _report(looks=(_DENIED,))


@pytest.mark.parametrize(
    ("report", "code", "strict_code"),
    [
        (_report(), 0, 0),
        (_report(_finding()), 2, 2),
        # Only what leaves no doubt drains a node: a prolog knows no budget.
        (_report(_ADVISED), 0, 0),
        (_report(_OBSERVED), 0, 0),
        (_report(_DEGRADED), 0, 0),
        # A log that was moved, a probe that fails, a driver that hangs for now.
        (_BLIND, 0, 3),
        (_report(looks=(_UNREAD,)), 0, 3),
        (_report(_FAILED), 0, 3),
        (_report(_finding(), looks=(_UNREAD, _DENIED)), 2, 2),
    ],
)
def test_a_prolog_fails_only_where_there_is_no_doubt(
    report: HealthReport, code: int, strict_code: int
) -> None:
    assert prolog_code(report, strict=False) == code
    assert prolog_code(report, strict=True) == strict_code


@pytest.mark.parametrize(
    ("word", "code"),
    [
        (None, 2),
        (BudgetAnswer("", _SINCE.wall_ns + 1), 2),
        # The controller spoke before the finding was there: it has not judged it yet.
        (BudgetAnswer("", _SINCE.wall_ns - 1), 0),
        (BudgetAnswer("40 other nodes should be isolated", _SINCE.wall_ns + 1), 0),
    ],
)
def test_the_fleets_budget_holds_for_a_prolog_as_well(word: BudgetAnswer | None, code: int) -> None:
    held = [BookEntry(_finding(), _SINCE)]
    known = Known(
        node="n", asked="agent", findings=held, looks=(), probes=_PROBES, budget_answer=word
    )
    report = report_on(known, ())
    assert prolog_code(report, strict=False) == code
    assert bool(report.kept_by_fleet) == (code == 0)
    assert json.loads(as_json(report))["fails_prolog"] == (code == 2)
    assert decode(encode(report)) == report


def test_a_check_says_how_many_devices_answered_and_what_it_could_not_judge() -> None:
    known = Known(
        node="n",
        asked="probes",
        findings=(),
        looks=(),
        probes=_PROBES,
        not_judged=(Unread("NvlinkErrors", "it has to be watched for 1800 s"),),
        answered=("8 of 8 GPUs", "7 of 8 RDMA ports"),
    )
    report = report_on(known, ())
    assert "(8 of 8 GPUs, 7 of 8 RDMA ports answer)" in as_text(report).splitlines()[0]
    assert "8 of 8 GPUs" in as_nagios(report)
    assert "not judged, as they have to be watched for longer: NvlinkErrors" in as_text(report)
    assert report.status is Status.OK
    (one,) = json.loads(as_json(report))["not_judged"]
    assert one["probe"] == "NvlinkErrors"
