"""The tables of NVIDIA's codes: every row is sound, and a damaged table says where."""

from collections import Counter
from pathlib import Path

import pytest

from everstep_agent.detectors.kernel.gpu_faults.nvlink_tables import (
    Nvlink5Action,
    Xid74Class,
    Xid74Error,
    decode,
    nvlink5_error,
    xid74_error,
    xid74_meaning,
)
from everstep_agent.detectors.kernel.gpu_faults.xid_table import XidRow, XidTable, driver_branch
from everstep_agent.tables.fault_tables import FOLDER, TableError, load_tables
from everstep_common.judging.findings import Severity, SuggestedAction

_TABLES = load_tables()
_ROWS = [row for code in _TABLES.xids.codes() if (row := _TABLES.xids.row(code, None))]


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: str(row.code))
def test_a_row_asks_for_what_its_severity_allows(row: XidRow) -> None:
    strong = {
        SuggestedAction.RESET_DEVICE,
        SuggestedAction.REBOOT_NODE,
        SuggestedAction.REPAIR_HARDWARE,
    }
    if row.severity is None:
        assert row.action is SuggestedAction.NONE
    elif row.severity is Severity.FATAL:
        assert row.action in strong
    else:
        assert row.action in {SuggestedAction.WATCH, SuggestedAction.REPAIR_HARDWARE}
    assert row.linked is None or 565 <= row.linked <= 600


def test_the_tables_have_what_their_sources_count() -> None:
    assert Counter(row.kind.value for row in _TABLES.sxids.values()) == {
        "corrected": 22,
        "stall": 3,
        "fatal": 42,
        "always_fatal": 20,
        "notable": 6,
    }
    found = Counter((row.xid, row.action.value) for row in _TABLES.nvlink5)
    assert (found[144, "ignore"], found[144, "reset"]) == (4, 2)
    assert (found[145, "ignore"], found[145, "reset"], found[145, "follow_154"]) == (16, 9, 8)
    assert (found[146, "ignore"], found[146, "reset"]) == (15, 5)
    assert (found[149, "ignore"], found[149, "reset"]) == (7, 24)


def test_codes_that_the_driver_speaks_about_are_those_of_the_catalogue() -> None:
    linked = {row.code: row.linked for row in _ROWS if row.linked}
    assert {c for c, branch in linked.items() if branch == 565} >= {48, 62, 63, 64, 74, 79, 94, 95}
    assert (linked[109], linked[143], 119 in linked) == (570, 575, False)


@pytest.mark.parametrize("bits", ["v1", "v2"])
def test_rows_of_the_decode_table_that_fit_the_same_error_agree(bits: str) -> None:
    seen: dict[object, Nvlink5Action] = {}
    for row in _TABLES.nvlink5:
        for unit in row.units:
            error = (row.xid, unit, row.subcode, getattr(row, bits)[-7:], row.status)
            assert seen.setdefault(error, row.action) is row.action


def test_a_row_holds_from_its_driver_on() -> None:
    old = XidRow(500, "old", None, SuggestedAction.NONE)
    new = XidRow(500, "new", Severity.FATAL, SuggestedAction.REBOOT_NODE, since=575)
    table = XidTable([new, old])
    assert [table.row(500, branch) for branch in (550, 575, None)] == [old, new, new]
    assert table.row(501, None) is None


@pytest.mark.parametrize(
    ("version", "branch"), [("570.86.15", 570), ("1000.1", 1000), ("", None), ("unknown", None)]
)
def test_the_branch_of_a_driver_is_its_first_number(version: str, branch: int | None) -> None:
    assert driver_branch(version) == branch


@pytest.mark.parametrize(
    ("xid", "text", "action"),
    [
        (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x0)", "reset"),
        (149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x0 0x0)", "reset"),
        (149, "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x0)", "ignore"),
        (
            145,
            "pid=1, name=ray::W, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1)",
            "ignore",
        ),
        (145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x0)", "follow_154"),
        (150, "MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x00000000 0x0)", "reset"),
    ],
)
def test_an_nvlink5_error_is_decoded_before_and_after_the_new_layout(
    xid: int, text: str, action: str
) -> None:
    error = nvlink5_error(xid, text)
    assert error is not None
    assert decode(_TABLES.nvlink5, error, 570) is Nvlink5Action(action)
    assert decode(_TABLES.nvlink5, error, None) is Nvlink5Action(action)


def test_an_error_that_the_decode_table_does_not_know_is_not_decoded() -> None:
    error = nvlink5_error(149, "NETIR_NEW Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)")
    assert error is not None
    assert decode(_TABLES.nvlink5, error, 570) is None
    assert nvlink5_error(149, "NVLink: short form") is None


@pytest.mark.parametrize(
    ("registers", "kind"),
    [
        ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Xid74Class.IGNORE),
        ("0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Xid74Class.HARDWARE),
        ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", Xid74Class.REPEATS),
        ("0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", Xid74Class.SIGNAL),
        ("0x0, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0", Xid74Class.FABRIC_RESET),
        ("0x2, 0x0, 0x2000, 0x0, 0x0, 0x0, 0x0", Xid74Class.HARDWARE),
        ("0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0", Xid74Class.THRESHOLD),
    ],
)
def test_the_gravest_bit_of_an_nvlink_error_decides(registers: str, kind: Xid74Class) -> None:
    error = xid74_error(f"NVLink: fatal error detected on link 14({registers})")
    assert error is not None
    assert error.link == 14
    row = xid74_meaning(_TABLES.xid74, error)
    assert row is not None
    assert row.kind is kind


def test_bits_that_no_row_knows_mean_nothing() -> None:
    assert xid74_meaning(_TABLES.xid74, Xid74Error(1, (1 << 31, 0, 0, 0, 0, 0, 0))) is None
    assert xid74_error("NVLink: fatal error detected on link 6") is None


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        ("xid.csv", "79,off the bus,grave,reboot_node,,,X", "expected one of info, degraded"),
        ("xid.csv", "79,off the bus,fatal,explode,,,X", "expected one of none, watch"),
        ("xid.csv", "x,off the bus,fatal,reboot_node,,,X", "expected a number"),
        ("xid.csv", "9000,,fatal,reboot_node,,,X", "the name is empty"),
        ("xid.csv", "79,too few", "expected 7 cells, found 2"),
        ("nvlink5.csv", "144,U,000000,012,1,0x1,reset", "expected bits"),
        ("nvlink5.csv", "144,U,000000,1,1,zz,reset", "invalid literal"),
        ("xid74.csv", "0,1,ignore,words", "registers count from 1 to 7"),
        ("xid74.csv", "1,32,ignore,words", "expected a number up to 31"),
        ("sxid.csv", "1,deadly,words", "expected one of corrected"),
    ],
)
def test_a_damaged_row_is_told_with_file_and_line(
    tmp_path: Path, name: str, row: str, why: str
) -> None:
    for table in FOLDER.glob("*.csv"):
        (tmp_path / table.name).write_bytes(table.read_bytes())
    with (tmp_path / name).open("a") as file:
        file.write(f"{row}\n")
    lines = len((tmp_path / name).read_text().splitlines())
    with pytest.raises(TableError, match=why) as caught:
        load_tables(tmp_path)
    assert f"{name}:{lines}:" in str(caught.value)


def test_a_table_without_its_columns_and_a_row_that_stands_twice_are_refused(
    tmp_path: Path,
) -> None:
    for table in FOLDER.glob("*.csv"):
        (tmp_path / table.name).write_bytes(table.read_bytes())
    path = tmp_path / "sxid.csv"
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[-1] + "\n")
    with pytest.raises(TableError, match="the same row stands above"):
        load_tables(tmp_path)
    path.write_text("# nothing\n")
    with pytest.raises(TableError, match="expected the columns code,class,name"):
        load_tables(tmp_path)
