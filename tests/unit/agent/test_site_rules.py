"""Site rules: files of a site are checked with every mistake at once, and judge beside our own."""

from pathlib import Path

import pytest

from everstep_agent.commands.rules import main
from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.kernel import KernelLine, XidSettings, judge_kernel, worth_showing
from everstep_agent.detectors.kernel.gpu_faults.fault_tables import FaultTables
from everstep_agent.probes.kernel.kernel_log import Position
from everstep_agent.sources.kernel_log import kernel_log
from everstep_agent.tables.site_rules import load_site_rules
from everstep_common.config import ConfigError
from everstep_common.judging.condition import HOUR_NS
from everstep_common.judging.findings import FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy

_LINE = "pdumon 0000:9a:00.0: phase 2 lost, 187 V"
_PDU = f"""\
[conditions.PduPhaseLost]
component = "pdu/PCI"
meaning = "the power unit has lost a phase"
finding.component = "pdu/{{pci}}"
finding.message = "phase {{phase}} of the power unit at {{pci}} is lost"

[[rules]]
name = "pdu-phase-lost"
condition = "PduPhaseLost"
needle = "pdumon"
pattern = 'pdumon ${{pci}}: phase (?P<phase>\\d) lost'
source = "our pdumon 2.1, report_phase()"
examples = '''
pdu/0000:9a:00.0 {_LINE}
'''
harmless = '''
pdumon 0000:9a:00.0: phase 2 measured, 231 V
'''

[[rules]]
name = "pdu-phase-back"
condition = "PduPhaseLost"
needle = "pdumon"
pattern = 'pdumon ${{pci}}: phase \\d is back'
message = "it is back"
ends = true
source = "our pdumon 2.1, report_phase()"
examples = '''
pdu/0000:9a:00.0 pdumon 0000:9a:00.0: phase 2 is back
'''
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pdu.toml").write_text(_PDU, encoding="utf-8")
    return tmp_path


def test_a_rule_of_a_site_judges_beside_our_own_and_is_only_observed(folder: Path) -> None:
    site = load_site_rules(folder)
    settings = XidSettings(FaultTables(), rules=site.rules)
    lost, ours = judge_kernel(
        [KernelLine(_LINE), KernelLine("I/O error, dev sda, sector 1")], settings
    )
    assert isinstance(lost, Faulty)
    assert lost.key == FindingKey("pdu/0000:9a:00.0", "PduPhaseLost")
    assert lost.finding.message == "phase 2 of the power unit at 0000:9a:00.0 is lost"
    assert lost.finding.severity is Severity.DEGRADED
    assert lost.finding.suggested_action is SuggestedAction.WATCH
    assert ours.key.condition == "DiskIoError"
    (over,) = judge_kernel([KernelLine("pdumon 0000:9a:00.0: phase 2 is back")], settings)
    assert isinstance(over, Healthy)
    condition = site.conditions["PduPhaseLost"]
    assert (condition.mode, condition.quiet_ns) == (Mode.OBSERVE, HOUR_NS)
    assert set(site.conditions) == {*CONDITIONS, "PduPhaseLost"}


def test_a_line_of_a_site_is_found_in_a_relayed_syslog_and_worth_showing(folder: Path) -> None:
    site = load_site_rules(folder)
    log = kernel_log(folder / "kmsg", "boot-1", Position(), site.rules)
    (folder / "kmsg").write_text(f"Nov  3 12:00:01 gpu-1 kernel: [ 12.345678] {_LINE}\n")
    assert [line.text for line in log.drain().lines] == [_LINE]
    quiet = KernelLine(_LINE, level=6)
    assert worth_showing([quiet], site.rules) == [quiet]
    assert worth_showing([quiet]) == []


def test_without_a_folder_the_rules_are_our_own(tmp_path: Path) -> None:
    assert load_site_rules(None).conditions is CONDITIONS
    assert load_site_rules(tmp_path).conditions == CONDITIONS


def test_the_rule_that_the_page_on_extending_shows_has_no_mistakes(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/extending.md").read_text(encoding="utf-8")
    (tmp_path / "shown.toml").write_text(
        page.partition("```toml\n")[2].partition("```")[0], encoding="utf-8"
    )
    assert [one.name for one in load_site_rules(tmp_path).added] == ["PduPhaseLost"]


_MISTAKES = r"""
ignore_cases = true
[words]
unit = '${device}'
[conditions.DiskIoError]
component = "disk/DEVICE"
meaning = "ours"
[conditions.PduLow]
component = "pdu"
mode = "enforced"
finding.message = "low"
[[rules]]
name = "block-io-error"
condition = "PduLo"
needle = "x"
pattern = 'a(b'
source = "here"
examples = ""

[[rules]]
name = "pdu-low"
condition = "PduLow"
needle = "low"
pattern = 'pdu (?P<unit>\w+) low ${volt}'
component = "pdu/{unit}"
severity = "bad"
ends = 1
source = "here"
examples = "pdu/a pdu a low"

[[rules]]
name = "pdu-low"
condition = "PduLow"
needle = "low"
pattern = ['pdu (?P<unit>\w+)', ' low']
component = "pdu/{units}"
message = "{unit.real}"
source = "here"
examples = "pdu/a pdu a low"
"""


def test_every_mistake_of_a_file_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pdu.toml"
    path.write_text(_MISTAKES, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_site_rules(tmp_path)
    assert [problem.removeprefix(f"{path}:") for problem in caught.value.problems] == [
        " ignore_cases: unknown key; did you mean ignore_case?",
        " words.unit: no word 'device' stands above",
        " conditions.DiskIoError: there is a condition of this name already",
        " conditions.PduLow.mode: expected one of 'observe', 'advise', 'enforce', got 'enforced'",
        " conditions.PduLow.meaning: missing",
        ' conditions.PduLow.component: expected a kind and what it is, like "disk/DEVICE"',
        "12: rule block-io-error: examples: expected a string, got ''",
        "12: rule block-io-error: name: there is a rule 'block-io-error' already",
        "12: rule block-io-error: condition: [conditions.PduLo] is not in this file;"
        " did you mean PduLow?",
        "12: rule block-io-error: needle: expected 2 characters or more, got 'x'",
        "12: rule block-io-error: component: missing, and its condition has no finding.component",
        "12: rule block-io-error: message: missing, and its condition has no finding.message",
        "12: rule block-io-error: pattern: no regular expression of Python: missing ),"
        " unterminated subpattern at position 1",
        "20: rule pdu-low: severity: expected one of 'info', 'degraded', 'fatal', got 'bad'",
        "20: rule pdu-low: ends: expected true or false, got 1",
        "20: rule pdu-low: pattern: no word 'volt' under [words]",
        "31: rule pdu-low: name: there is a rule 'pdu-low' already",
        "31: rule pdu-low: component: {units} is no group of the pattern, (?P<units>…);"
        " groups: {unit}",
        "31: rule pdu-low: message: {unit.real} is no group of the pattern, (?P<unit.real>…);"
        " groups: {unit}",
    ]


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ("pdu/0000:9a:00.0 pdu: lost", "the needle 'pdumon' is not in it"),
        ("pdu/0000:9a:00.0 pdumon: phase 2 lost", "the pattern does not match it"),
        (
            "pdu/0000:9b:00.0 pdumon 0000:9a:00.0: phase 2 lost",
            "it is about pdu/0000:9a:00.0, not pdu/0000:9b:00.0",
        ),
        (
            f"pdu/0000:9a:00.0 process '{_LINE}' started with executable stack",
            "what the pattern matches is not how a message of the kernel begins",
        ),
        (
            "disk/sda I/O error, dev sda, sector 1",
            "the rule block-io-error knows it and is asked before",
        ),
    ],
)
def test_an_example_that_a_rule_does_not_keep_says_why(
    folder: Path, example: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "pdu.toml"
    path.write_text(_PDU.replace(f"pdu/0000:9a:00.0 {_LINE}", example), encoding="utf-8")
    assert main(["check", str(path)]) == 1
    line = example.partition(" ")[2]
    assert capsys.readouterr().err.splitlines() == [
        f"everstep-agent rules: {path}:7: rule pdu-phase-lost: example 1: {told}: {line}"
    ]


def test_a_harmless_line_that_a_rule_knows_is_a_mistake(folder: Path) -> None:
    (folder / "pdu.toml").write_text(_PDU.replace("2 measured", "2 lost"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"harmless 1: the rule pdu-phase-lost knows it: pdumon"):
        load_site_rules(folder)


def test_what_nothing_would_end_is_refused(folder: Path) -> None:
    text = _PDU.replace("finding.component", 'clears_when = "never"\nfinding.component', 1)
    (folder / "pdu.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"PduPhaseLost: quiet_min: missing beside clears_when"):
        load_site_rules(folder)


@pytest.mark.parametrize(
    "pattern", [r"(?:\w+ ?)+!", r"(?:a|a)*b", r".*x.*y", r"pdumon .*, .*, .* lost"]
)
def test_a_pattern_that_one_line_could_keep_busy_is_refused(folder: Path, pattern: str) -> None:
    text = _PDU.replace(
        "pdumon ${pci}: phase (?P<phase>\\d) lost", f"(?P<pci>)(?P<phase>){pattern}"
    )
    (folder / "pdu.toml").write_text(text, encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"phase-lost: pattern: one line could keep the agent busy"
    ):
        load_site_rules(folder)


def test_a_folder_is_checked_as_the_agent_reads_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pdu.toml.bak").touch()
    (folder / "empty").mkdir()
    assert main(["check", str(folder), str(folder / "empty")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}/empty: not read; its name does not end in .toml",
        f"{folder}/pdu.toml.bak: not read; its name does not end in .toml",
        f"{folder}/empty: no *.toml in it, and so no rules",
        f"{folder}/pdu.toml: 2 rules, 2 examples, no mistakes; conditions: PduPhaseLost (observe)",
    ]


def test_the_agents_log_says_which_files_it_has_read(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "pdu.toml.rpmsave").touch()
    with caplog.at_level("INFO"):
        load_site_rules(folder)
    assert caplog.messages == [
        f"rules of the site: 2 in {folder}/pdu.toml; not read: pdu.toml.rpmsave"
    ]


def test_a_site_has_so_many_rules_over_all_its_files(folder: Path) -> None:
    (folder / "many.toml").write_text("[[rules]]\n" * 999, encoding="utf-8")
    with pytest.raises(ConfigError, match="999 rules, of which 998 are left"):
        load_site_rules(_renamed(folder))


def _renamed(folder: Path) -> Path:
    """Return a folder in which the good file is the first."""
    return (folder / "pdu.toml").rename(folder / "a.toml").parent


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("name = 'pdu-phase-lost'", "name = ['pdu']"),
        ("meaning = 'the", "quiet_min = 525601\nmeaning = 'the"),
    ],
)
def test_values_of_another_kind_are_told_and_no_crash(folder: Path, row: str, told: str) -> None:
    text = _PDU.replace('"', "'").replace(row, told, 1)
    (folder / "pdu.toml").write_text(text, encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"expected a (string|whole number from 1 to 525600), got"
    ):
        load_site_rules(folder)


def test_a_component_that_is_another_each_time_opens_no_findings_without_end(folder: Path) -> None:
    text = _PDU.replace("${pci}", "(?P<unit>.*)").replace("{pci}", "{unit}")
    (folder / "pdu.toml").write_text(text.replace("0000:9a:00.0", "left"), encoding="utf-8")
    settings = XidSettings(FaultTables(), rules=load_site_rules(folder).rules)
    lines = [KernelLine(f"pdumon {n}{'x' * 9000}: phase 2 lost") for n in range(1000)]
    found = judge_kernel(lines, settings)
    assert len(found) == 257
    assert found[-1].key == FindingKey("pdu/others", "PduPhaseLost")
    assert max(len(one.key.component) for one in found) == 200


def test_files_are_checked_together_and_summed_up(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(folder / name) for name in ("pdu.toml", "again.toml", "none.toml", "bad.toml")]
    Path(paths[1]).write_text(_PDU, encoding="utf-8")
    Path(paths[3]).write_text("= 1", encoding="utf-8")
    assert main(["check", paths[0]]) == 0
    assert capsys.readouterr().out == (
        f"{paths[0]}: 2 rules, 2 examples, no mistakes; conditions: PduPhaseLost (observe)\n"
    )
    assert main(["check", *paths]) == 1
    told = [
        line.removeprefix("everstep-agent rules: ") for line in capsys.readouterr().err.splitlines()
    ]
    assert told == [
        f"{paths[1]}: conditions.PduPhaseLost: there is a condition of this name already",
        f"{paths[1]}:7: rule pdu-phase-lost: name: there is a rule 'pdu-phase-lost' already",
        f"{paths[1]}:20: rule pdu-phase-back: name: there is a rule 'pdu-phase-back' already",
        f"{paths[2]}: cannot be read: No such file or directory",
        f"{paths[3]}: not valid TOML: Invalid statement (at line 1, column 1)",
    ]
