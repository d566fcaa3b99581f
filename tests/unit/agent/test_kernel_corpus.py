"""Kernel rules and their sources: each rule knows a line, and healthy nodes' lines say nothing."""

from functools import cache

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.kernel import KernelLine, XidSettings, judge_kernel
from everstep_agent.detectors.kernel.detector import PREFILTER
from everstep_agent.detectors.kernel.rules.builtin import RULES
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy
from unit.agent.kernel_corpus import FOUND, HARMLESS

_TABLES = load_tables()


@pytest.mark.parametrize(("condition", "component", "line"), FOUND)
def test_a_line_of_the_kernel_is_known(condition: str, component: str, line: str) -> None:
    (judgement,) = judge_kernel([KernelLine(line)], XidSettings(_TABLES))
    assert PREFILTER.passes(line)
    assert judgement.key.condition == condition
    assert condition in CONDITIONS
    if component == "-":
        assert isinstance(judgement, Healthy)
    else:
        assert isinstance(judgement, Faulty)
        assert judgement.key == FindingKey(component, condition)
        assert judgement.finding.message


@cache
def _reached() -> dict[LineRule, str]:
    answers = {line: RULES.answer(KernelLine(line)) for _, _, line in FOUND}
    return {answer[0]: line for line, answer in answers.items() if answer is not None}


@pytest.mark.parametrize("rule", list(RULES), ids=lambda rule: rule.name)
def test_every_rule_is_reached_by_a_line_of_its_source(rule: LineRule) -> None:
    assert rule in _reached(), f"no line reaches {rule.name}"


def test_every_condition_of_a_rule_is_in_the_catalogue() -> None:
    assert {rule.condition for rule in RULES} <= set(CONDITIONS)


@pytest.mark.parametrize("line", HARMLESS)
def test_a_line_of_a_healthy_node_is_no_finding(line: str) -> None:
    found = judge_kernel([KernelLine(line)], XidSettings(_TABLES))
    assert [one for one in found if isinstance(one, Faulty)] == []


@pytest.mark.parametrize("before", ["[  100.123456] ", "<3>[  100.123456][ T4242] ", "kernel: "])
def test_a_time_stamp_before_a_line_hides_nothing(before: str) -> None:
    hidden = [line for _, _, line in FOUND if not judge_kernel([KernelLine(before + line)])]
    assert hidden == []


# What users can have the kernel write: paths and options of any length, names of programs of 15
# characters (TASK_COMM_LEN, include/linux/sched.h).
_CHOSEN = [
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a/{0},task=p,pid=5",
    "cgroup: fork rejected by pids controller in /user.slice/{0}",
    "p[1]: segfault at 0 ip 0 sp 0 error 4 in {0}[7f00+1000]",
    "process '{0}' started with executable stack",
    "tmpfs: Unknown parameter '{0}'",
    "usb 1-1: Product: {0}",
    "usb 1-1: Product: {2}",
    "{0} IN=veth0 OUT= MAC=02:00 SRC=10.0.0.1 DST=10.0.0.2",
    "{1}[77]: segfault at 0 ip 0 sp 0 error 4 in a.out[7f00+1000]",
    "traps: {1}[77] trap divide error ip:0 sp:0 error:0 in a.out[7f00+1000]",
    "{1} invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0",
    "{1}: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP)",
    "{1} (77): drop_caches: 3",
    "CPU: 5 PID: 1 Comm: {1} Tainted: P           OE     6.8.0-45-generic",
    "oom_reaper: reaped process 77 ({1}), now anon-rss:0kB",
    "warning: `{1}' uses wireless extensions which will stop working",
]


@pytest.mark.parametrize("context", _CHOSEN)
def test_what_a_user_chose_is_no_word_of_the_kernel(context: str) -> None:
    lines = [line for condition, _, line in FOUND if condition != "NcclCrash"]
    chosen = {context.format(line, line[:15], line.partition(": ")[2]): line for line in lines}
    found = {text: judge_kernel([KernelLine(text)], XidSettings(_TABLES)) for text in chosen}
    assert {text: one for text, one in found.items() if one} == {}
