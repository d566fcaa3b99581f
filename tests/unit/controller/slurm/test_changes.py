"""Changes at Slurm: what differs from what is wanted, and the commands that change it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.port import Applied
from everstep_controller.drivers.slurm.changes import (
    Change,
    ChangeRules,
    change_of,
    grouped,
    is_as_wanted,
    update_line,
    update_words,
)
from everstep_controller.drivers.slurm.driver import merged
from everstep_controller.drivers.slurm.jobs import decode_squeue, may_be_requeued
from everstep_controller.drivers.slurm.names import (
    NodeNames,
    NoteField,
    by_our_names,
    is_one_name,
    node_lists,
)
from everstep_controller.drivers.slurm.reasons import drain_reason
from unit.controller.slurm.recorded import RECORDED, SEPARATOR, VERSIONS, node

_RULES = ChangeRules("c1", NoteField.NONE)
_NOTED = ChangeRules("c1", NoteField.COMMENT)
_XID = WantedIsolation("n1", ("automation",), "automation: GPU 3 fell off", "XidFatal")
_FREE = WantedIsolation("n1")
_REASON = drain_reason(_XID, "c1")


@pytest.mark.parametrize("states", ["IDLE", "MIXED", "DOWN+NOT_RESPONDING", "IDLE+POWERED_DOWN"])
def test_a_free_node_is_drained(states: str) -> None:
    assert change_of(_XID, node(states), _RULES) == Change("drain", _REASON)


@pytest.mark.parametrize("appended", ["", " : Not responding"])
def test_what_is_so_is_not_done_again(appended: str) -> None:
    now = node("IDLE+DRAIN", _REASON + appended)
    assert change_of(_XID, now, _RULES) is None
    assert is_as_wanted(_XID, now, _RULES)
    assert change_of(_FREE, node("IDLE"), _RULES) is None


def test_another_claim_changes_the_reason() -> None:
    other = WantedIsolation("n1", ("operator",), "operator: ann: fan")
    assert change_of(other, node("IDLE+DRAIN", _REASON), _RULES) == Change(
        "drain", drain_reason(other, "c1")
    )


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ("IDLE+DRAIN", "ann: cables"),
        ("IDLE+DRAIN", f"{_REASON} ann: do not touch"),
        ("IDLE+DRAIN", drain_reason(_XID, "another cluster")),
        ("IDLE+FAIL", "disk"),
        ("DOWN", "Node unexpectedly rebooted"),
        ("DOWN+NOT_RESPONDING", "ann: PSU"),
        ("IDLE+MAINTENANCE", ""),
        ("IDLE+DRAIN+FAIL", _REASON),
        ("IDLE+DRAIN+INVALID_REG", _REASON),
    ],
)
@pytest.mark.parametrize("wanted", [_XID, _FREE])
def test_the_hold_of_others_is_neither_changed_nor_removed(
    states: str, reason: str, wanted: WantedIsolation
) -> None:
    assert change_of(wanted, node(states, reason), _RULES) is None
    assert is_as_wanted(wanted, node(states, reason), _RULES)


@pytest.mark.parametrize(
    ("states", "reason", "left"),
    [
        ("IDLE+DRAIN", _REASON, ""),
        ("MIXED+DRAIN", _REASON, ""),
        ("DOWN+DRAIN+NOT_RESPONDING", _REASON, "Not responding"),
        ("DOWN+DRAIN", f"{_REASON} : Not responding", "Not responding"),
        ("DOWN+DRAIN", _REASON, "down at Slurm; Everstep holds it no more"),
    ],
)
def test_a_release_clears_the_drain_alone(states: str, reason: str, left: str) -> None:
    now = node(states, reason)
    assert change_of(_FREE, now, _RULES) == Change("undrain", left)
    assert not is_as_wanted(_FREE, now, _RULES)


def test_a_note_is_written_and_taken_back_where_nobody_else_wrote_one() -> None:
    told = change_of(_XID, node("IDLE"), _NOTED)
    assert told == Change("drain", _REASON, "everstep:automation:XidFatal")
    now = node("IDLE+DRAIN", _REASON, '"everstep:automation:XidFatal"')
    assert change_of(_XID, now, _NOTED) is None
    assert change_of(_FREE, now, _NOTED) == Change("undrain", "", "")
    theirs = change_of(_XID, node("IDLE", comment="rack 7"), _NOTED)
    assert theirs == Change("drain", _REASON, None)


def test_nodes_with_one_reason_are_one_command() -> None:
    changes = {f"n{number}": Change("drain", _REASON) for number in range(1000)}
    (words,) = update_words(grouped(changes), NoteField.NONE)
    assert words[:1] == ("update",)
    assert words[1] == f"nodename={','.join(changes)}"
    assert words[2:] == ("state=drain", f"reason={_REASON}")


def test_many_reasons_are_lines_of_which_each_is_one_command() -> None:
    changes = {f"n{number}": Change("drain", f"{_REASON}{number % 3}") for number in range(1000)}
    changes["m1"] = Change("undrain", "", "")
    updates = list(update_words(grouped(changes), NoteField.COMMENT))
    lines = [update_line(words) for words in updates]
    assert all(len(line) < 4096 for line in lines)
    assert sum(line.count(",") + 1 for line in lines) == 1001
    assert lines[-1] == "update nodename=m1 state=undrain comment=\n"


_LINE = re.compile(
    r'update nodename=[A-Za-z0-9._,-]+ state=drain reason="[A-Za-z0-9 .,:;_+/()@=?#-]*"\n'
)


@given(st.text(), st.text(max_size=30))
def test_no_text_ends_a_line_or_a_quotation(sentence: str, condition: str) -> None:
    wanted = WantedIsolation("n1", ("automation",), sentence, condition)
    change = change_of(wanted, node("IDLE"), _RULES)
    assert change is not None
    (words,) = update_words({change: ["n1", "n2"]}, NoteField.NONE)
    assert _LINE.fullmatch(update_line(words))


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("n1", True), ("gpu-0042.rack7", True), ("ALL", False), ("all", False), ("n[1-5]", False),
        ("n1,n2", False), ("", False), ("n1\nn2", False), ("-n", False), ("n 1", False),
    ],
)  # fmt: skip
def test_a_name_is_that_of_one_node(name: str, one: bool) -> None:
    assert is_one_name(name) is one


@given(st.lists(st.text("n0123456789", min_size=1, max_size=12)), st.integers(20, 60))
def test_lists_fit_and_have_all_names(names: list[str], bytes_max: int) -> None:
    lists = list(node_lists(names, bytes_max))
    assert [name for part in lists for name in part] == names
    assert all(len(",".join(part)) <= bytes_max for part in lists)


def test_a_node_is_known_by_the_name_that_is_chosen() -> None:
    nodes = [node("IDLE", name="a"), node("IDLE", name="b")]
    assert set(by_our_names(nodes, NodeNames.NAME)[0]) == {"a", "b"}
    assert set(by_our_names(nodes, NodeNames.HOSTNAME)[0]) == {"a-host", "b-host"}
    assert by_our_names(nodes, NodeNames.ADDRESS) == ({}, frozenset({"10.0.0.1"}))


@pytest.mark.parametrize("version", VERSIONS)
def test_jobs_on_nodes_are_read_in_every_version(version: str) -> None:
    ((number, *told),) = decode_squeue((RECORDED / version / "squeue.txt").read_text(), SEPARATOR)
    assert told == ["RUNNING", "n3"]
    shown = (RECORDED / version / "job.txt").read_text()
    assert may_be_requeued(shown, number)
    assert not may_be_requeued(shown, "77")
    assert not may_be_requeued(shown.replace(" Requeue=1 ", " Requeue=0 "), number)


_THEIRS, _OURS = Hold("ann", ours=False), Hold(_REASON, ours=True)


@pytest.mark.parametrize(
    ("outcomes", "merged_to"),
    [
        ([Applied({"n1": _OURS}), Applied({})], Applied({"n1": _OURS}, {}, set())),
        ([Applied({}), Applied({"n1": None})], Applied({"n1": None}, {}, set())),
        ([Applied({"n1": _OURS}), Applied({"n1": _THEIRS})], Applied({"n1": _THEIRS}, {}, set())),
        ([Applied({"n1": _OURS}), Applied({}, {"n1": "no"})], Applied({}, {"n1": "no"}, set())),
        ([Applied({}), Applied({})], Applied({}, {}, {"n1"})),
    ],
)
def test_several_clusters_are_one_answer(outcomes: list[Applied], merged_to: Applied) -> None:
    assert merged(outcomes, ["n1"]) == merged_to
