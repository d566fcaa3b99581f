"""Kernel lines: which are findings, of which component, and what ends them."""

import pytest

from everstep_agent.detectors.gpus.presence import GpuReading, GpusReading
from everstep_agent.detectors.kernel import (
    KernelLine,
    XidSettings,
    judge_gpu_faults_over,
    judge_kernel,
    pci_address,
    xid_event,
)
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.clock import Stamp
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown

XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."


_TABLES = load_tables()
_NOW = Stamp("boot-1", 10**12, 10**18)
_ROWS = {code: row for code in _TABLES.xids.codes() if (row := _TABLES.xids.row(code, None))}
# They are judged by what their text says.
_SPECIAL = {154, 162, 163}


def _judge(line: str, *, injected: bool = False) -> list[Judgement]:
    return judge_kernel([KernelLine(line, injected)], XidSettings(_TABLES), _NOW)


def _finding(line: str, *, injected: bool = False) -> Finding:
    (judgement,) = _judge(line, injected=injected)
    assert isinstance(judgement, Faulty)
    return judgement.finding


def test_xid_79_is_fatal_and_asks_for_a_reboot() -> None:
    finding = _finding(XID_79)
    assert finding.component == "gpu/0000:3b:00.0"
    assert finding.condition == "XidFatal"
    assert finding.severity is Severity.FATAL
    assert finding.suggested_action is SuggestedAction.REBOOT_NODE
    assert finding.evidence == XID_79
    assert not finding.injected


def test_a_line_that_a_process_wrote_is_marked_as_injected() -> None:
    assert _finding(XID_79, injected=True).injected


@pytest.mark.parametrize("code", [c for c, row in _ROWS.items() if row.severity is None])
def test_a_faulty_program_is_no_finding_about_the_node(code: int) -> None:
    assert _judge(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, text") == []


@pytest.mark.parametrize(
    "code", [c for c, row in _ROWS.items() if row.severity is not None and c not in _SPECIAL]
)
def test_every_other_code_of_the_table_is_a_finding_with_its_action(code: int) -> None:
    finding = _finding(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1, text")
    row = _ROWS[code]
    assert (finding.severity, finding.suggested_action) == (row.severity, row.action)
    assert finding.rule == f"Xid table: {code}"
    conditions = {Severity.INFO: "XidObserved", Severity.DEGRADED: "XidDegraded"}
    assert finding.condition == conditions.get(finding.severity, "XidFatal")


def test_an_unknown_code_is_observed_and_not_acted_on() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 4242, something new"
    assert xid_event(line) is not None
    finding = _finding(line)
    assert (finding.condition, finding.severity) == ("XidObserved", Severity.INFO)
    assert finding.suggested_action is SuggestedAction.NONE
    assert finding.rule == "unknown Xid"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "RESET_DEVICE"),
        (
            "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            "REBOOT_NODE",
        ),
        ("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "RESET_DEVICE"),
    ],
)
def test_xid_154_says_what_the_driver_wants(text: str, action: str) -> None:
    finding = _finding(f"NVRM: Xid (PCI:0000:3b:00): 154, {text}")
    assert finding.condition == "GpuRecoveryAction"
    assert finding.suggested_action.name == action


def test_xid_154_back_to_none_is_healthy() -> None:
    text = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    (judgement,) = _judge(f"NVRM: Xid (PCI:0000:3b:00): 154, {text}")
    assert isinstance(judgement, Healthy)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("0000:3b:00", "0000:3b:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0001:81:00.0", "0001:81:00.0"),
    ],
)
def test_pci_addresses_are_written_as_linux_does(written: str, address: str) -> None:
    assert pci_address(written) == address


_GPU = GpuReading(index=0, uuid="GPU-1", name="H100", pci="0000:3b:00.0")
_OPEN = BookEntry(_finding(XID_79), Stamp("boot-1", 5, 5))


@pytest.mark.parametrize(
    ("boot", "gpus", "kind"),
    [
        ("boot-1", GpusReading(gpus=(_GPU,)), Unknown),
        ("boot-2", None, Unknown),
        ("boot-2", GpusReading(absent="no library"), Unknown),
        ("boot-2", GpusReading(gpus=(_GPU,)), Healthy),
    ],
)
def test_an_xid_is_over_only_after_a_reboot_that_shows_the_gpu(
    boot: str, gpus: GpusReading | None, kind: type
) -> None:
    (judgement,) = judge_gpu_faults_over([_OPEN], boot, gpus)
    assert isinstance(judgement, kind)
