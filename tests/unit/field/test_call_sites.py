"""Call sites of warnings: the table of the field has all of the product's, and no other."""

import ast
from collections.abc import Iterator
from pathlib import Path

from everstep_agent.detectors import conditions as of_the_agent
from everstep_controller import conditions as of_the_controller
from field.invariants.call_sites import CALL_SITES, Known, find_job_site, find_site
from field.invariants.logs import OWN_FAILURES

REPOSITORY = Path(__file__).resolve().parents[3]
_PACKAGES = (
    *("agent/everstep_agent", "common/everstep_common", "controller/everstep_controller"),
    "trainer/everstep",
)
_LEVELS = ("warning", "error", "exception", "critical")


def _warned() -> Iterator[tuple[str, str]]:
    """Yield the module and the words of every call."""
    for package in _PACKAGES:
        top = REPOSITORY / package
        trees = {path: ast.parse(path.read_text()) for path in sorted(top.rglob("*.py"))}
        constants = {name: words for tree in trees.values() for name, words in _constants(tree)}
        for path, tree in trees.items():
            module = ".".join(path.relative_to(top.parent).with_suffix("").parts)
            named = _logger_name(tree) or module
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and (words := _words(node)) is not None:
                    yield named, constants.get(words, words)


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a module that have a name."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                yield ast.unparse(target), str(node.value.value)


def _words(call: ast.Call) -> str | None:
    named = call.func
    if not isinstance(named, ast.Attribute) or not call.args:
        return None
    # A logger, or one that leaves out lines that come too often.
    if named.attr != "warn" and not (
        named.attr in _LEVELS and "logger" in ast.unparse(named.value)
    ):
        return None
    said = call.args[0]
    return str(said.value) if isinstance(said, ast.Constant) else ast.unparse(said)


def _logger_name(tree: ast.Module) -> str:
    """Return the name of a module's logger, where it is not the module's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
            for named in node.args:
                if isinstance(named, ast.Constant):
                    return str(named.value)
    return ""


def test_every_warning_of_the_product_is_in_the_table_and_nothing_else_is() -> None:
    told = {(site.module, site.words) for site in CALL_SITES}
    warned = set(_warned())
    assert warned - told == set(), "give each a finding, or the reason why it needs none"
    assert told - warned == set(), "these are not in the sources any more"


def test_every_row_says_why_and_names_conditions_exactly_where_it_goes_with_findings() -> None:
    for site in CALL_SITES:
        assert site.why
        assert bool(site.conditions) == (site.known is Known.FINDING), site


def test_the_findings_of_a_row_are_conditions_that_exist() -> None:
    groups = (*of_the_agent.GROUPS.values(), *of_the_controller.GROUPS.values())
    known = {condition.name for group in groups for condition in group}
    assert {name for site in CALL_SITES for name in site.conditions} <= known


def test_what_tells_that_everstep_is_broken_are_conditions_that_exist() -> None:
    groups = (*of_the_agent.GROUPS.values(), *of_the_controller.GROUPS.values())
    assert {condition.name for group in groups for condition in group} >= OWN_FAILURES


def test_a_line_is_known_by_the_call_that_wrote_it() -> None:
    line = "everstep_agent.uplink: controller 10.0.0.1:7433: it does not answer"
    site = find_site(line)
    assert site is not None
    assert site.words == "controller %s: %s"
    counted = "everstep_agent.uplink: 9 more lines in a minute, caused by host a: controller %s: %s"
    assert find_site(counted) is site
    assert find_site("everstep_agent.uplink: nobody ever wrote this") is None
    assert find_site("systemd: Started something") is None


def test_a_warning_of_the_sdk_is_known_in_whatever_form_a_script_logs_it() -> None:
    words = "the agent is away; step 40 was written to /shared/a"
    for line in (f"everstep: {words}", f"WARNING:everstep:{words}", f"[rank 3] {words}"):
        site = find_job_site(line)
        assert site is not None
        assert site.words == "the agent is away; step %d was written to %s"
    assert find_job_site("step 40 loss 0.3") is None
    # Sentences that are variables would be any line.
    assert find_job_site("") is None
