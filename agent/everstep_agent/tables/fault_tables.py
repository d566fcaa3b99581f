"""Fault table loader: reads NVIDIA's tables of error codes from the data files of this package."""

import csv
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TypeVar

from everstep_agent.detectors.kernel.gpu_faults.fault_tables import FaultTables, SxidClass, SxidRow
from everstep_agent.detectors.kernel.gpu_faults.nvlink_tables import (
    Nvlink5Action,
    Nvlink5Row,
    Xid74Class,
    Xid74Row,
)
from everstep_agent.detectors.kernel.gpu_faults.xid_table import XidRow, XidTable
from everstep_common.judging.findings import Severity, SuggestedAction

FOLDER = Path(__file__).parent

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
_Cells = dict[str, str]


class TableError(ValueError):
    """A table is damaged; the message names the file, the line and what is wrong in it."""


def load_tables(folder: Path = FOLDER) -> FaultTables:
    """Return all tables. Raises TableError, and OSError for a file that cannot be read."""
    sxids = _rows(folder / "sxid.csv", ("code", "class", "name"), _sxid)
    return FaultTables(
        xids=XidTable(_rows(folder / "xid.csv", _XID_COLUMNS, _xid)),
        nvlink5=_rows(folder / "nvlink5.csv", _NVLINK5_COLUMNS, _nvlink5),
        xid74=_rows(folder / "xid74.csv", ("register", "bits", "class", "name"), _xid74),
        sxids={row.code: row for row in sxids},
    )


_XID_COLUMNS = ("code", "name", "severity", "action", "since", "linked", "catalogue")
_NVLINK5_COLUMNS = ("xid", "unit", "subcode", "v1", "v2", "status", "action")


def _rows(path: Path, columns: tuple[str, ...], row: Callable[[_Cells], T]) -> tuple[T, ...]:
    lines = path.read_text(encoding="utf-8").splitlines()
    numbered = [(n, text) for n, text in enumerate(lines, 1) if text and not text.startswith("#")]
    if not numbered or tuple(numbered[0][1].split(",")) != columns:
        raise TableError(f"{path}: expected the columns {','.join(columns)}")
    found: dict[tuple[str, ...], T] = {}
    for number, text in numbered[1:]:
        (cells,) = csv.reader([text])
        if len(cells) != len(columns):
            raise TableError(f"{path}:{number}: expected {len(columns)} cells, found {len(cells)}")
        try:
            value = row(dict(zip(columns, cells, strict=True)))
        except ValueError as error:
            raise TableError(f"{path}:{number}: {error}") from error
        if found.setdefault(tuple(cells), value) is not value:
            raise TableError(f"{path}:{number}: the same row stands above")
    return tuple(found.values())


def _xid(cells: _Cells) -> XidRow:
    program = cells["severity"] == "none"
    return XidRow(
        code=_number(cells["code"]),
        name=_words(cells["name"]),
        severity=None if program else _one_of(Severity, cells["severity"]),
        action=_one_of(SuggestedAction, cells["action"]),
        since=_number(cells["since"] or "0"),
        linked=_number(cells["linked"]) if cells["linked"] else None,
    )


def _nvlink5(cells: _Cells) -> Nvlink5Row:
    return Nvlink5Row(
        xid=_number(cells["xid"]),
        units=tuple(cells["unit"].split("/")),
        subcode=int(_bits(cells["subcode"]), 2),
        v1=_bits(cells["v1"]),
        v2=_bits(cells["v2"]),
        status=int(cells["status"], 16),
        action=_one_of(Nvlink5Action, cells["action"]),
    )


def _xid74(cells: _Cells) -> Xid74Row:
    bits = tuple(_number(bit, 31) for bit in cells["bits"].split())
    kind = _one_of(Xid74Class, cells["class"])
    register = _number(cells["register"], 7)
    if register < 1:
        raise ValueError("registers count from 1 to 7")
    return Xid74Row(register, bits, kind, _words(cells["name"]))


def _sxid(cells: _Cells) -> SxidRow:
    return SxidRow(
        _number(cells["code"]), _one_of(SxidClass, cells["class"]), _words(cells["name"])
    )


def _number(text: str, largest: int = 99_999) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > largest:
        raise ValueError(f"expected a number up to {largest}, found {text!r}")
    return int(text)


def _bits(text: str) -> str:
    if not text or set(text) - {"0", "1"}:
        raise ValueError(f"expected bits, found {text!r}")
    return text


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("the name is empty")
    return text


def _one_of(kind: type[E], text: str) -> E:
    known = {member.value: member for member in kind}
    if text not in known:
        raise ValueError(f"expected one of {', '.join(known)}, found {text!r}")
    return known[text]
