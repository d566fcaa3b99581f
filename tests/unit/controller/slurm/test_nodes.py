"""Slurm's nodes, as the programs of three versions print them, and who withholds which."""

from collections.abc import Sequence

import pytest

from everstep_controller.core.model.isolation import Hold
from everstep_controller.drivers.port import DriverError, SchedulerNode
from everstep_controller.drivers.slurm.nodes import (
    ADDRESSED_FIELDS,
    SINFO_FIELDS,
    SlurmNode,
    decode_shown,
    decode_sinfo,
    listed_names,
)
from unit.controller.slurm.recorded import RECORDED, SEPARATOR, VERSIONS, node


def _decoded(
    text: str, separator: str, fields: Sequence[str] = SINFO_FIELDS
) -> dict[str, SlurmNode]:
    return {node.name: node for node in decode_sinfo(text, separator, fields)}


# The cluster whose mark the recorded reason has.
_CLUSTER = "c1"


@pytest.fixture(params=VERSIONS)
def nodes(request: pytest.FixtureRequest) -> dict[str, SlurmNode]:
    text = (RECORDED / str(request.param) / "sinfo.txt").read_text()
    return _decoded(text, SEPARATOR, ADDRESSED_FIELDS)


def test_three_versions_are_recorded() -> None:
    assert VERSIONS == ["22.05", "24.11", "26.05"]


def test_who_withholds_a_node_is_told_in_every_version(nodes: dict[str, SlurmNode]) -> None:
    holds = {name: hold for name, one in nodes.items() if (hold := one.hold(_CLUSTER)) is not None}
    foreign = {name: hold.reason for name, hold in holds.items() if not hold.ours}
    assert {name for name, hold in holds.items() if hold.ours} == {"n2"}
    assert set(foreign) >= {"n1", "n5", "n6", "n7"}
    assert foreign["n1"] == 'cables "x" | \n5e9a n2|idle`id`$(id)'
    assert foreign["n5"] == "DOWN: ann: PSU"
    assert foreign["n6"] == "failing"
    assert foreign["n7"] == "a reservation for maintenance"
    # In a reservation, idle, and silent: nobody has decided that.
    assert not set(foreign) & {"n3", "n8", "n10"}


def test_a_node_of_two_partitions_is_one_node(nodes: dict[str, SlurmNode]) -> None:
    assert len(nodes) == 10
    assert nodes["n1"].partitions == ("batch", "debug")
    assert nodes["n3"].told(["7"]) == SchedulerNode(
        nodes["n3"].shown_state, ("7",), {"partition": "batch", "feature": "h100,ib"}
    )


def test_a_silent_node_is_told_as_lost(nodes: dict[str, SlurmNode]) -> None:
    assert nodes["n10"].lost().endswith(": Not responding")
    assert not nodes["n5"].lost()
    assert not nodes["n3"].lost()


def test_comment_and_extra_are_read(nodes: dict[str, SlurmNode]) -> None:
    assert (nodes["n3"].comment, nodes["n3"].extra) == ("hello", "world")
    assert (nodes["n2"].comment, nodes["n2"].extra) == ("", "")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_of_no_partition_is_shown_by_scontrol(version: str) -> None:
    text = (RECORDED / version / "show.txt").read_text()
    shown = decode_shown(text, {"lonely", "nope"})
    assert list(shown) == ["lonely"]
    assert shown["lonely"].hold(_CLUSTER) == Hold("in no partition", ours=False)
    assert decode_shown(text, {"n2"})["n2"].hold(_CLUSTER) is not None


@pytest.mark.parametrize(
    "states",
    [
        "IDLE", "MIXED", "ALLOCATED+COMPLETING", "IDLE+PLANNED", "IDLE+RESERVED", "UNKNOWN",
        "IDLE+NOT_RESPONDING", "IDLE+CLOUD+POWERED_DOWN", "IDLE+POWERING_UP", "IDLE+POWER_UP",
        "MIXED+CLOUD+POWERING_DOWN", "IDLE+POWER_DOWN", "IDLE+REBOOT_REQUESTED", "IDLE+BLOCKED",
        "IDLE+EXTERNAL", "IDLE+DYNAMIC_NORM", "FUTURE+DYNAMIC_FUTURE", "IDLE+RESUME", "IDLE+?",
        "MIXED+MAINTENANCE+RESERVED", "IDLE+PERFCTRS", "INVALID", "",
    ],
)  # fmt: skip
def test_what_is_no_hold_of_somebody_is_none(states: str) -> None:
    assert node(states).hold(_CLUSTER) is None


@pytest.mark.parametrize(
    ("states", "reason", "said"),
    [
        ("IDLE+DRAIN", "fan", "fan"),
        ("MIXED+DRAIN", "", "drained, and no reason given"),
        ("IDLE+CLOUD+DRAIN+POWERED_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_ASAP"),
        ("IDLE+FAIL", "disk", "disk"),
        ("IDLE+INVALID_REG", "", "its slurmd registers with less than slurm.conf says"),
        ("IDLE+REBOOT_ISSUED", "", "it is being rebooted by Slurm"),
        ("IDLE+MAINTENANCE+RESERVED", "", "a reservation for maintenance"),
        ("DOWN", "Node unexpectedly rebooted", "DOWN: Node unexpectedly rebooted"),
        ("DOWN", "Not responding", "DOWN: Not responding"),
        ("DOWN+NOT_RESPONDING", "ann: PSU", "DOWN: ann: PSU"),
    ],
)
def test_what_is_withheld_has_a_reason(states: str, reason: str, said: str) -> None:
    assert node(states, reason).hold(_CLUSTER) == Hold(said, ours=False)


def _cut(text: str) -> list[str]:
    return [text[: len(text) * part // 7] for part in range(1, 7)]


@pytest.mark.parametrize("version", VERSIONS)
def test_half_an_answer_is_refused_or_is_of_whole_nodes(version: str) -> None:
    text = (RECORDED / version / "sinfo.txt").read_text()
    whole = _decoded(text, SEPARATOR, ADDRESSED_FIELDS)
    refused = 0
    for cut in _cut(text):
        try:
            assert set(_decoded(cut, SEPARATOR, ADDRESSED_FIELDS)) < set(whole)
        except DriverError:
            refused += 1
    assert refused >= 4


@pytest.mark.parametrize("text", ["<html>502</html>", "n1 idle\n", "slurm_load_partitions: no"])
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(DriverError, match=r"cut short or is not one: .* type 'sinfo'"):
        _decoded(text, SEPARATOR, ADDRESSED_FIELDS)


def test_no_nodes_are_no_error() -> None:
    assert _decoded("", SEPARATOR) == {}
    assert _decoded("\n", SEPARATOR) == {}


def test_a_line_has_as_many_fields_as_are_asked_for() -> None:
    line = SEPARATOR.join(["n1", "idle", "p*", "f", "(null)", "(null)", "none", "\n"])
    assert len(SINFO_FIELDS) == 7
    assert _decoded(line, SEPARATOR)["n1"].reason == ""


def _line(names: str, state: str, partition: str, reason: str) -> str:
    return SEPARATOR.join([names, state, partition, "h100", "", "", reason, "\n"])


def test_nodes_with_equal_fields_are_told_together() -> None:
    told = _line("n[1-3,5]", "idle", "gpu*", "none") + _line("n4", "idle+drain", "gpu*", "a, b[1]")
    # A partition without nodes has a line as well.
    told += _line("n[4-5]", "idle", "debug", "none") + _line("", "n/a", "empty", "none")
    nodes = _decoded(told, SEPARATOR)
    assert list(nodes) == ["n1", "n2", "n3", "n5", "n4"]
    assert nodes["n5"].partitions == ("gpu", "debug")
    assert nodes["n3"].partitions == ("gpu",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n1,m-2.x", "n1 m-2.x"),
        ("gpu-[08-11],m[1,3]-a", "gpu-08 gpu-09 gpu-10 gpu-11 m1-a m3-a"),
        ("r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"),
        ("n[9-10]", "n9 n10"),
    ],
)
def test_lists_of_names_are_read_as_slurm_prints_them(text: str, names: str) -> None:
    assert list(listed_names(text)) == names.split()


@pytest.mark.parametrize("text", ["n[1-", "n1]", "n[a]", "n[1-x]", "n[]", "n[1-99999999]", "a,,b"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(DriverError, match="is no list of nodes"):
        list(listed_names(text))
