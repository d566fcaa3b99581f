"""Kernel lines: records of the kernel's device, and lines of saved logs, which users can write."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from everstep_agent.detectors.kernel.detector import (
    PREFILTER,
    KernelDetector,
    XidSettings,
    worth_showing,
)
from everstep_agent.detectors.kernel.gpu_faults.fault_tables import FaultTables
from everstep_agent.detectors.kernel.gpu_faults.xid_detector import DriverTruth
from everstep_agent.detectors.kernel.logs.log_reading import LogReading, NumberedLine
from everstep_agent.detectors.kernel.rules.builtin import RULES
from everstep_agent.probes.kernel.kernel_device import DeviceLog
from everstep_agent.probes.kernel.kernel_log import Position
from everstep_agent.tables.fault_tables import load_tables
from fuzz.choices import Choices
from fuzz.edits import edited
from fuzz.format import Format, Handler

_RULES = tuple(RULES)
_LINES_MAX = 12
# Of each rule so many lines that it matches are made; edits make the others.
_LINES_PER_RULE = 10
_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
_XIDS = (
    "NVRM: Xid (PCI:0000:3b:00): {}, pid=1234, name=python, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:3b:00): {}, GPU recovery action changed from 0x0 (None) to 0x{:x} (x)",
    "NVRM: Xid (GPU at 0000:3b:00): {}, Graphics Exception: ESR 0x{:x} (GPC 1, TPC 2, SM 3)",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): {}, Fatal, Link {} LTSSM Fault Up",
)
_CODES = (13, 31, 48, 63, 74, 79, 94, 95, 119, 144, 145, 150, 154, 162, 163, 12028, 20034, 99999)
_PREFIXES = (
    "", "[ 1234.567890] ", "[Mon Nov 23 12:00:00 2026] ", "Nov 23 12:00:00 gpu-1 kernel: ",
    "2026-11-23T12:00:00.123456+00:00 gpu-1 kernel: [12.5] ", "<3>", "kern  :err   : [ 1.0] ",
    "Nov 23 12:00:00 gpu-2 python[12]: ", "> ", "\ufeff", "\x1b[31m", "&gt; ", "data: ",
)  # fmt: skip
_HEADERS = ("3,{},5000,-;", "6,{},0,-,caller=T1;", "13,{},9,+;", "4,{},{},c;", "{};", ",,,;", "")
_JSON_KEYS = (
    "MESSAGE", "msg", "__REALTIME_TIMESTAMP", "_HOSTNAME", "_TRANSPORT", "time", "pri",
    "SYSLOG_FACILITY", "__MONOTONIC_TIMESTAMP", "log",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelCase:
    """Records as the kernel's device hands them over, and the lines of a saved log."""

    records: tuple[bytes, ...]
    lines: tuple[str, ...]


@cache
def _matching(number: int) -> tuple[str, ...]:
    """Return lines that a rule matches, made from its pattern."""
    found: list[str] = []

    @settings(
        max_examples=_LINES_PER_RULE,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=_SLOW,
    )
    @given(st.from_regex(_RULES[number].pattern))
    def keep(text: str) -> None:
        found.append(text)

    keep()
    return tuple(found)


def _make(choices: Choices) -> KernelCase:
    lines = [_line(choices) for _ in range(1 + choices.below(_LINES_MAX))]
    records = [_record(line, number, choices) for number, line in enumerate(lines)]
    saved = [_saved(line, choices) for line in lines]
    if choices.rarely(30):
        saved.append(choices.of(PREFILTER.needles) + choices.of(("x", " (", "0", "\\")) * 60_000)
    return KernelCase(tuple(records), tuple(saved))


def _line(choices: Choices) -> str:
    if choices.below(2):
        number = choices.of((*range(256), *range(100_000, 100_001)))
        code = choices.of((*_CODES, number))
        line = choices.of(_XIDS).format(code, number)
    else:
        line = choices.of(_matching(choices.below(len(_RULES))))
    raw = edited(line.encode(errors="surrogatepass"), choices)
    return raw.decode(errors="replace")


def _record(line: str, number: int, choices: Choices) -> bytes:
    sequence = number if not choices.rarely(8) else choices.of((0, 2**63, -1, 10**30))
    text = choices.of(_HEADERS).format(sequence, number * 1000) + line
    return edited((text + "\n SUBSYSTEM=pci").encode(errors="replace"), choices)


def _saved(line: str, choices: Choices) -> str:
    if choices.rarely(4):
        key = choices.of(_JSON_KEYS)
        value = choices.of((line, 5, None, [1, 2, 300], {"MESSAGE": line}, "1e999", "12.5", -1))
        as_json = json.dumps({"MESSAGE": line, key: value})
        return choices.of((as_json, f"{key}={line}", f'  "{key}": {json.dumps(value)},'))
    return choices.of(_PREFIXES) + line


@dataclass(slots=True)
class _Moment:
    boot_id: str = "fuzz"
    boot_ns: int = 0
    wall_ns: int = 0


@asynccontextmanager
async def _world(_: Path) -> AsyncIterator[Handler]:
    tables = load_tables()
    detector, now = KernelDetector(XidSettings(tables)), _Moment()

    async def handle(case: KernelCase) -> None:
        now.boot_ns = now.wall_ns = now.boot_ns + 10**9
        _follow(case.records, detector, now)
        _read_saved(case.lines, tables)

    yield handle


def _follow(records: tuple[bytes, ...], detector: KernelDetector, now: _Moment) -> None:
    left = iter(records)
    device = DeviceLog(Path("/dev/null"), "fuzz", Position("", 0), lambda _, __: _next(left))
    batch = device.drain()
    os.close(device.descriptor() or 0)
    told = detector.judge(detector.prefilter(batch.lines), DriverTruth(), now)
    json.dumps([str(one) for one in (*told, *worth_showing(batch.lines), device.position)])


def _next(left: Iterator[bytes]) -> bytes:
    try:
        return next(left)
    except StopIteration:
        raise BlockingIOError from None


def _read_saved(lines: tuple[str, ...], tables: FaultTables) -> None:
    reading = LogReading(tables)
    numbered = [NumberedLine(number, text) for number, text in enumerate(lines, start=1)]
    reading.read_lines(numbered)
    reading.finish()
    reading.worst()


KERNEL_LINES = Format(
    _make,
    _world,
    ("everstep_agent.detectors.kernel", "everstep_agent.probes.kernel.kernel_device"),
    2000,
)
