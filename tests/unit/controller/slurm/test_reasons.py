"""Drain reasons: what Slurm shows of a claim, and whose a reason is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.model.isolation import WantedIsolation
from everstep_controller.drivers.slurm.reasons import (
    REASON_MAX,
    allowed_text,
    drain_reason,
    is_our_note,
    is_ours,
    node_note,
    own_part,
)

_CLUSTER = "c1"
_XID = WantedIsolation("n1", ("automation",), "automation: GPU 3 fell off the bus", "XidFatal")


def test_it_begins_with_our_name_then_the_condition_and_says_what_to_type() -> None:
    reason = drain_reason(_XID, _CLUSTER)
    assert reason.startswith("everstep: XidFatal automation: GPU 3 fell off the bus; everstep why ")
    assert "XidFatal"[:10] in reason[:20]


def test_a_claim_without_a_condition_names_its_owner() -> None:
    wanted = WantedIsolation("n1", ("operator", "automation"), "operator: ann: fan")
    assert drain_reason(wanted, _CLUSTER).startswith("everstep: operator operator: ann: fan;")


def test_nodes_with_one_cause_have_one_reason() -> None:
    other = WantedIsolation("n2", _XID.owners, _XID.reason, _XID.condition)
    assert drain_reason(other, _CLUSTER) == drain_reason(_XID, _CLUSTER)


@given(st.text(), st.text(), st.sampled_from(["", "XidFatal", "x" * 300]))
def test_whatever_a_finding_says_only_allowed_characters_reach_slurm(
    sentence: str, owner: str, condition: str
) -> None:
    wanted = WantedIsolation("n1", (owner,), sentence, condition)
    reason = drain_reason(wanted, _CLUSTER)
    assert len(reason) <= REASON_MAX
    assert reason.startswith("everstep: ")
    assert allowed_text(reason.rpartition(" #")[0]) == reason.rpartition(" #")[0]
    assert not set(reason) & set("\"'`\\$|\n\r\t\x00;!&<>*?[]{}~^%" + "\u2028") - {";", "?"}
    assert is_ours(reason, _CLUSTER)
    note = node_note(wanted)
    assert not set(note) & set(" \"'\\\n")
    assert is_our_note(note)


def test_a_line_that_ends_is_a_space() -> None:
    said = allowed_text("a\nshutdown\r\n'b' \"c\"\x00\td`id` é")
    assert said == "a shutdown b c d id ?"


@pytest.mark.parametrize(
    "edited",
    [
        "everstep: XidFatal",
        "everstep: by hand, ann",
        "{reason} ann: RMA 1234",
        "{reason} : ann: RMA 1234",
        "{reason} : gres/gpu count reported lower than configured (7 < 8)",
        "{reason} : Not responding : Low RealMemory",
        "ann: {reason}",
        "{reason}\n",
        "",
        "none",
    ],
)
def test_a_reason_that_somebody_edited_is_his(edited: str) -> None:
    assert not is_ours(edited.format(reason=drain_reason(_XID, _CLUSTER)), _CLUSTER)


def test_a_changed_letter_makes_it_somebody_elses() -> None:
    reason = drain_reason(_XID, _CLUSTER)
    for at in range(len(reason)):
        changed = "x" if reason[at] != "x" else "y"
        assert not is_ours(reason[:at] + changed + reason[at + 1 :], _CLUSTER)


def test_the_reason_of_another_cluster_is_not_ours() -> None:
    assert not is_ours(drain_reason(_XID, "c2"), _CLUSTER)


@pytest.mark.parametrize(
    "appended",
    [
        "",
        " : Not responding",
        " : reboot issued : reboot complete",
        " : Not responding : reboot issued",
    ],
)
def test_what_slurmctld_appends_leaves_it_ours(appended: str) -> None:
    reason = drain_reason(_XID, _CLUSTER)
    assert is_ours(reason + appended, _CLUSTER)
    assert own_part(reason + appended) == reason


@pytest.mark.parametrize(
    ("note", "ours"),
    [("", True), ("(null)", True), ("everstep:automation:XidFatal", True), ("rack 7", False)],
)
def test_a_note_of_others_stays(note: str, ours: bool) -> None:
    assert is_our_note(note) is ours
