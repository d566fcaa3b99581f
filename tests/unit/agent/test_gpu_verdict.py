"""The verdict on Xids: which rule decides, what replaces what, what is remembered, what ends it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.presence import GpuReading, GpusReading, RecoveryAction
from everstep_agent.detectors.kernel import KernelDetector, KernelLine, XidSettings, xid_event
from everstep_agent.detectors.kernel.gpu_faults.clearance import judge_by_driver
from everstep_agent.detectors.kernel.gpu_faults.gpu_verdict import XidOverride
from everstep_agent.detectors.kernel.gpu_faults.xid_detector import DriverTruth
from everstep_agent.detectors.kernel.gpu_faults.xid_history import XidHistory, XidSighting
from everstep_agent.monitoring.memory import dump_xids, load_xids
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.clock import Stamp
from everstep_common.config import ConfigError, load
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Finding, FindingKey, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

_TABLES = load_tables()
_SECOND = 10**9
_DAY = 86_400 * _SECOND
_PCI = "0000:3b:00.0"
_LINK = "NVLink: fatal error detected on link 4(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"


def _stamp(seconds: float = 0, boot: str = "boot-1") -> Stamp:
    return Stamp(boot, 10**12 + int(seconds * _SECOND), 10**18 + int(seconds * _SECOND))


def _xid(code: int, text: str = "words", pci: str = _PCI) -> KernelLine:
    return KernelLine(f"NVRM: Xid (PCI:{pci}): {code}, {text}")


def _wants(number: int) -> KernelLine:
    return _xid(154, f"GPU recovery action changed from 0x0 (None) to 0x{number} (words)")


class Story:
    """A detector, and a book that takes what it says."""

    def __init__(
        self,
        overrides: Mapping[int, XidOverride] | None = None,
        history: XidHistory | None = None,
    ) -> None:
        self.history = history or XidHistory()
        settings = XidSettings(_TABLES, overrides or {}, self.history)
        self.detector = KernelDetector(settings)
        self.detector.open_finding = self.open
        self.book = FindingBook(CONDITIONS)
        self.sent = 0

    def open(self, key: FindingKey) -> Finding | None:
        """Return the finding that is open under a key."""
        found = (known.finding for known in self.book.open_findings)
        return next((finding for finding in found if finding.key == key), None)

    def tell(
        self,
        *lines: KernelLine,
        now: Stamp | None = None,
        says: RecoveryAction | None = None,
        branch: int | None = None,
    ) -> list[Finding]:
        """Let the kernel log lines, and return what is open."""
        truth = DriverTruth(branch, {_PCI: says} if says is not None else {})
        judged = self.detector.judge(self.detector.prefilter(lines), truth, now or _stamp())
        return self.take(judged, now or _stamp())

    def take(self, judged: list[Judgement], now: Stamp) -> list[Finding]:
        """Enter judgements, and return what is open."""
        self.sent += len(self.book.enter_judgements(judged, now).raised)
        return [known.finding for known in self.book.open_findings]


def test_the_operator_goes_before_everything_else() -> None:
    story = Story({79: XidOverride.IGNORE, 13: XidOverride.REPAIR_HARDWARE, 48: XidOverride.WATCH})
    assert story.tell(_xid(79), says=RecoveryAction.NODE_REBOOT) == []
    (finding,) = story.tell(_xid(13))
    assert (finding.severity, finding.rule) == (Severity.FATAL, "operator override")
    assert finding.suggested_action is SuggestedAction.REPAIR_HARDWARE
    watched = story.tell(_xid(48), says=RecoveryAction.GPU_RESET)[1]
    assert (watched.severity, watched.condition) == (Severity.DEGRADED, "XidDegraded")


@pytest.mark.parametrize(
    ("says", "severity", "action"),
    [
        (RecoveryAction.GPU_RESET, Severity.FATAL, SuggestedAction.RESET_DEVICE),
        (RecoveryAction.NODE_REBOOT, Severity.FATAL, SuggestedAction.REBOOT_NODE),
        (RecoveryAction.DRAIN_AND_RESET, Severity.FATAL, SuggestedAction.RESET_DEVICE),
        (RecoveryAction.DRAIN_P2P, Severity.DEGRADED, SuggestedAction.WATCH),
        (RecoveryAction.NONE, Severity.DEGRADED, SuggestedAction.WATCH),
    ],
)
def test_then_the_driver_says_what_to_do(
    says: RecoveryAction, severity: Severity, action: SuggestedAction
) -> None:
    (finding,) = Story().tell(_xid(48), says=says, branch=570)
    assert (finding.severity, finding.suggested_action) == (severity, action)
    assert finding.rule == "NVML field 230"


@pytest.mark.parametrize(("code", "branch"), [(119, 575), (48, 550), (109, 565)])
def test_a_driver_that_does_not_speak_about_the_code_is_not_asked(code: int, branch: int) -> None:
    (finding,) = Story().tell(_xid(code), says=RecoveryAction.NONE, branch=branch)
    assert finding.rule == f"Xid table: {code}"


def test_the_driver_wants_nothing_done_about_what_the_tables_ignore() -> None:
    line = _xid(149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x0)")
    assert Story().tell(line, says=RecoveryAction.NONE, branch=570) == []


def test_then_the_drivers_words_in_the_log_before_or_after_the_xid() -> None:
    for lines in ((_xid(48), _wants(2)), (_wants(2), _xid(48))):
        found = {f.condition: f for f in Story().tell(*lines)}
        assert found["XidFatal"].rule == "Xid 154"
        assert found["XidFatal"].suggested_action is SuggestedAction.REBOOT_NODE
        assert found["GpuRecoveryAction"].suggested_action is SuggestedAction.REBOOT_NODE


def test_words_that_come_in_the_next_look_are_news_and_those_of_another_hour_are_not() -> None:
    story = Story()
    story.tell(_xid(48))
    story.tell(_wants(2), now=_stamp(1))
    fatal = story.open(FindingKey(f"gpu/{_PCI}", "XidFatal"))
    assert fatal is not None
    assert fatal.rule == "Xid 154"
    late = Story()
    late.tell(_xid(48))
    late.tell(_wants(2), now=_stamp(3600))
    fatal = late.open(FindingKey(f"gpu/{_PCI}", "XidFatal"))
    assert fatal is not None
    assert fatal.rule == "Xid table: 48"


def test_an_action_that_is_not_known_is_shown_and_not_acted_on() -> None:
    assert Story().tell(_wants(9)) == []


def test_the_version_that_the_log_tells_chooses_the_row() -> None:
    story = Story()
    loading = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5"
    (finding,) = story.tell(KernelLine(loading), _xid(48), says=RecoveryAction.NONE)
    assert story.detector.driver == "550.54.15"
    assert finding.rule == "Xid table: 48"


def test_what_a_fault_causes_does_not_replace_it_and_a_graver_one_does() -> None:
    story = Story()
    story.tell(_xid(48))
    (finding,) = story.tell(_xid(95), _xid(45), _xid(62), now=_stamp(1))
    assert "Xid 48" in finding.message
    assert story.sent == 1
    (finding,) = story.tell(_xid(79), now=_stamp(2))
    assert "Xid 79" in finding.message
    assert "together with Xid 48, 95, 45, 62" in finding.message
    assert story.sent == 2
    (finding,) = story.tell(_xid(48), now=_stamp(600))
    assert finding.suggested_action is SuggestedAction.REBOOT_NODE
    assert story.sent == 2


def test_a_storm_of_two_xids_in_turn_is_told_once() -> None:
    story = Story()
    for second in range(50):
        story.tell(_xid(48), _xid(95), now=_stamp(second))
    assert story.sent == 1


def test_power_smoothing_that_is_back_ends_its_finding() -> None:
    story = Story()
    assert [f.condition for f in story.tell(_xid(163))] == ["PowerSmoothingOff"]
    assert story.tell(_xid(162)) == []


def test_a_fault_that_is_back_after_two_reboots_is_the_hardware() -> None:
    history = XidHistory()
    for boot, day in (("boot-1", 0), ("boot-2", 1)):
        (finding,) = Story(history=history).tell(_xid(79), now=_stamp(86_400 * day, boot))
        assert finding.suggested_action is SuggestedAction.REBOOT_NODE
    history = load_xids(dump_xids(history.remembered()))
    story = Story({}, history)
    (finding,) = story.tell(_xid(79), now=_stamp(2 * 86_400, "boot-3"))
    assert finding.suggested_action is SuggestedAction.REPAIR_HARDWARE
    assert finding.rule == "same Xid after 2 reboots"
    (other,) = Story({}, history).tell(
        _xid(79, pci="0000:5e:00.0"), now=_stamp(2 * 86_400, "boot-3")
    )
    assert other.suggested_action is SuggestedAction.REBOOT_NODE


def test_another_gpu_in_the_same_slot_begins_anew() -> None:
    old = [XidSighting(_PCI, 79, "", f"boot-{n}", 10**18 - _DAY, "GPU-old") for n in (7, 8)]
    history = XidHistory(old)
    assert history.earlier_boots(_PCI, 79, _stamp(), "GPU-new") == 0
    assert history.earlier_boots(_PCI, 79, _stamp(), "GPU-old") == 2
    assert history.earlier_boots(_PCI, 79, _stamp()) == 2


def test_a_fault_of_last_month_is_another_one() -> None:
    old = [XidSighting(_PCI, 79, "", f"boot-{n}", 10**18 - 30 * _DAY) for n in (7, 8)]
    (finding,) = Story(history=XidHistory(old)).tell(_xid(79))
    assert finding.suggested_action is SuggestedAction.REBOOT_NODE


def test_a_memory_that_cannot_be_read_is_begun_anew() -> None:
    assert load_xids("[{]").remembered() == ()
    assert load_xids('[{"pci": 3}]').remembered() == ()


def test_a_program_fault_that_repeats_on_one_gpu_only_calls_for_diagnostics() -> None:
    story = Story()
    assert story.tell(_xid(31)) == []
    assert story.tell(_xid(31), now=_stamp(10)) == []
    (finding,) = story.tell(_xid(31), now=_stamp(1000))
    assert (finding.condition, finding.severity) == ("XidRepeats", Severity.DEGRADED)
    everywhere = Story()
    everywhere.tell(_xid(31, pci="0000:5e:00.0"))
    everywhere.tell(_xid(31))
    assert everywhere.tell(_xid(31), now=_stamp(1000)) == []


def test_xid_13_repeats_only_on_the_same_tpc() -> None:
    story = Story()
    on = "Graphics SM Warp Exception on (GPC 3, TPC {}, SM 0): Out Of Range Address"
    story.tell(_xid(13, on.format(1)))
    assert story.tell(_xid(13, on.format(2)), now=_stamp(1000)) == []
    (finding,) = story.tell(_xid(13, on.format(1)), now=_stamp(2000))
    assert "GPC 3, TPC 1" in finding.message
    assert Story().tell(_xid(13, "no place"), _xid(13, "no place"), now=_stamp(9000)) == []


def test_the_third_error_of_one_link_in_a_day_is_the_hardware() -> None:
    story = Story()
    for second in (0, 1000):
        (finding,) = story.tell(_xid(74, _LINK), now=_stamp(second))
        assert finding.suggested_action is SuggestedAction.RESET_DEVICE
    assert finding.rule == "Xid 74 registers: repeats"
    (finding,) = story.tell(_xid(74, _LINK), now=_stamp(2000))
    assert finding.suggested_action is SuggestedAction.REPAIR_HARDWARE


def _reading(action: int | None, error: str = "") -> GpusReading:
    gpu = GpuReading(
        index=0, uuid="GPU-1", name="H100", pci=_PCI, recovery_action=action, error=error
    )
    return GpusReading(driver="570.86.15", gpus=(gpu,))


def _refine(story: Story, reading: GpusReading, now: Stamp) -> list[Judgement]:
    return judge_by_driver(story.book.open_findings, reading, _TABLES, {}, now)


def test_a_later_answer_of_the_driver_decides_instead_of_the_table_once() -> None:
    story = Story()
    story.tell(_xid(48))
    judged = _refine(story, _reading(2), _stamp(1))
    assert isinstance(judged[0], Faulty)
    (finding,) = story.take(judged, _stamp(1))
    assert (finding.rule, story.sent) == ("NVML field 230", 2)
    assert finding.suggested_action is SuggestedAction.REBOOT_NODE
    assert _refine(story, _reading(2), _stamp(2)) == []


def test_an_xid_is_over_when_the_driver_has_asked_for_nothing_in_ten_looks() -> None:
    story = Story()
    story.tell(_xid(48))
    for second in range(1, 10):
        (judgement,) = _refine(story, _reading(0), _stamp(second))
        assert isinstance(judgement, Healthy)
        assert story.take([judgement], _stamp(second)) != []
    assert story.take(_refine(story, _reading(0), _stamp(10)), _stamp(10)) == []


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        (_xid(48), _reading(None)),
        (_xid(48), _reading(0, error="GPU is lost")),
        (_xid(119), _reading(0)),
        (_xid(48), GpusReading(driver="570.86.15")),
    ],
)
def test_a_driver_that_says_nothing_about_it_ends_nothing(
    line: KernelLine, reading: GpusReading
) -> None:
    story = Story()
    story.tell(line)
    assert _refine(story, reading, _stamp(100)) == []


def test_what_the_driver_wants_nothing_done_about_is_told_for_ten_minutes() -> None:
    story = Story()
    story.tell(_xid(48), says=RecoveryAction.NONE, branch=570)
    assert _refine(story, _reading(0), _stamp(599)) == []
    (judgement,) = _refine(story, _reading(0), _stamp(601))
    assert isinstance(judgement, Healthy)


def test_a_fault_that_came_back_after_reboots_is_not_ended_by_the_driver() -> None:
    old = [XidSighting(_PCI, 48, "", f"boot-{n}", 10**18 - _DAY) for n in (7, 8)]
    story = Story(history=XidHistory(old))
    story.tell(_xid(48))
    assert _refine(story, _reading(0), _stamp(100)) == []


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
        "NVRM: Xid (PCI:0000:3b:00.0): 79, GPU has fallen off the bus.",
        "NVRM: Xid (0000:3b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:00000000:3B:00.0): 79",
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 79, pid=1",
        "NVRM: Xid (GPU at PCI:0000:3b:00): 79, pid=1",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python (x), GPU has fallen off the bus.",
    ],
)
def test_an_xid_is_read_in_every_form(line: str) -> None:
    (finding,) = Story().tell(KernelLine(line))
    assert (finding.component, finding.condition) == (f"gpu/{_PCI}", "XidFatal")


def test_a_storm_of_different_lines_about_one_thing_is_told_again_only_when_graver() -> None:
    story = Story()
    stall = KernelLine("rcu: INFO: rcu_sched self-detected stall on CPU")
    lockup = KernelLine("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:123]")
    for second in range(20):
        story.tell(stall, lockup, now=_stamp(second))
    assert story.sent == 1
    late = KernelLine("nvme nvme0: I/O 12 QID 5 timeout, aborting")
    down = KernelLine("nvme nvme0: controller is down; will reset: CSTS=0xffffffff")
    for second in range(20):
        story.tell(late, down, late, now=_stamp(second))
    assert story.sent == 2


def test_overrides_are_read_from_the_configuration_with_all_mistakes_at_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('[signals.xid]\n94 = "ignore"\n13 = "repair_hardware"\n')
    assert load(AgentConfig, path).signals.xid == {
        "94": XidOverride.IGNORE,
        "13": XidOverride.REPAIR_HARDWARE,
    }
    path.write_text('[signals.xid]\nfallen = "ignore"\n79 = "pray"\n')
    with pytest.raises(ConfigError) as caught:
        load(AgentConfig, path)
    assert "signals.xid" in "\n".join(caught.value.problems)
    path.write_text('[signals.xid]\nfallen = "ignore"\n')
    with pytest.raises(ConfigError, match="expected the number of an Xid"):
        load(AgentConfig, path)


def test_faults_of_programs_do_not_fill_the_memory() -> None:
    history = XidHistory()
    story = Story(history=history)
    for hour in range(100):
        story.tell(_xid(45), _xid(43), _xid(4242), now=_stamp(3600 * hour))
    assert history.remembered() == ()
    story.tell(_xid(13, "(GPC 1, TPC 2, SM 3)"), _xid(79))
    assert [(seen.code, seen.place) for seen in history.remembered()] == [
        (13, "GPC 1, TPC 2"),
        (79, ""),
    ]


def test_the_driver_has_no_say_in_a_drill_and_nobody_remembers_it() -> None:
    old = [XidSighting(_PCI, 79, "", f"boot-{n}", 10**18 - _DAY) for n in (7, 8)]
    story = Story(history=XidHistory(old))
    drill = KernelLine(_xid(79).text, injected=True)
    (finding,) = story.tell(drill, says=RecoveryAction.NONE, branch=570)
    assert (finding.rule, finding.injected) == ("Xid table: 79", True)
    assert finding.suggested_action is SuggestedAction.REBOOT_NODE
    assert story.history.remembered() == tuple(old)
    assert _refine(story, _reading(0), _stamp(3600)) == []


@pytest.mark.parametrize(
    "columns",
    [
        "NETIR_LINK_EVT  Fatal   XC0 i0 Link 14 (0x0215c5c6 0x00000000 0x0 0x0 0x0 0x0)",
        "NETIR_LINK_EVT Fatal XC0 i0 Link 14 (0x0215c5c6 0x00000000 0x0 0x0 0x0 0x0)",
        "NETIR_LINK_EVT\tFatal\tXC 0 i 0 Link 14 [0x0215c5c6, 0x00000000]",
    ],
)
def test_columns_may_be_padded(columns: str) -> None:
    (finding,) = Story().tell(_xid(149, columns), branch=570)
    assert (finding.severity, finding.suggested_action) == (
        Severity.FATAL,
        SuggestedAction.RESET_DEVICE,
    )
    assert finding.rule == "NVLink5 table: 149"
    assert "link 14" in finding.message


def test_what_only_the_driver_calls_fatal_is_degraded_and_named_so() -> None:
    (link,) = Story().tell(_xid(149, "NETIR_NEW_EVT  Fatal   XC0 i0 Link 07 (0x0000000a)"))
    assert (link.severity, link.suggested_action) == (
        Severity.DEGRADED,
        SuggestedAction.RESET_DEVICE,
    )
    assert "link 7" in link.message
    (unknown,) = Story().tell(_xid(4242, "NEW_UNIT  Fatal  XC0 i0"))
    assert unknown.severity is Severity.DEGRADED
    assert "calls it fatal" in unknown.message
    (known,) = Story().tell(_xid(167, "PCIe fatal timeout"))
    assert known.severity is Severity.DEGRADED


@pytest.mark.parametrize("word", ["Nonfatal", "Non-fatal", "non-Fatal"])
def test_what_the_driver_calls_not_fatal_is_only_told(word: str) -> None:
    (finding,) = Story().tell(_xid(4242, f"NEW_UNIT {word} XC0 i0"))
    assert finding.severity is Severity.INFO


def test_a_contained_error_with_a_new_memory_row_asks_for_a_reset_when_idle() -> None:
    row = "Row Remapper: New row (0x0000000000abcdef) marked for remapping, reset gpu to activate."
    for lines in ((_xid(94), _xid(63, row)), (_xid(63, row), _xid(94))):
        for says in (None, RecoveryAction.NONE):
            (finding,) = Story().tell(*lines, says=says, branch=570)
            assert finding.severity is Severity.DEGRADED
            assert finding.suggested_action is SuggestedAction.RESET_DEVICE
            assert "idle" in finding.message


def test_a_victim_names_the_xid_that_it_follows_and_is_no_finding() -> None:
    victim = "pid=1, name=python, channel 0x00000003 caused by previous Xid 145"
    line = _xid(45, victim)
    event = xid_event(line.text)
    assert event is not None
    assert event.cause == 145
    assert Story().tell(line) == []
