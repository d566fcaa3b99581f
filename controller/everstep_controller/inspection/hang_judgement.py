"""Hang judgement: who holds back a job that stands still, judged by what its ranks told."""

import json
from collections.abc import Iterable
from pathlib import Path

from everstep_common.codec import from_json, to_json
from everstep_common.hangs.looks import Look, judge_told
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.verdict import HangVerdict
from everstep_controller.inspection.judge_process import judge_file


async def judge_hang(file: Path, at_ns: int) -> Look:
    """Return what a look found that was written to a file. Raises JudgeError."""
    return await judge_file("hang", file, lambda printed: _look_of(printed, at_ns))


def _look_of(printed: bytes, at_ns: int) -> Look:
    found = json.loads(printed)
    verdict = from_json(HangVerdict, found["verdict"])
    marks = dict(zip(found["ranks"], zip(*found["places"], strict=True), strict=True))
    devices = found["devices"]
    return Look(
        at_ns,
        verdict,
        tuple(found["stuck"]),
        marks,
        pause=found["pause"],
        place=found["place"],
        seen=tuple(found["seen"]),
        devices=None if devices is None else tuple(devices),
        held_ms=found["held_ms"],
        works=found["works"],
    )


def find(told: Iterable[NodeTold]) -> str:
    """Return what a look found, as JSON: what the judge prints."""
    look = judge_told(told)
    found = {
        "verdict": to_json(look.verdict),
        "stuck": look.stuck,
        "ranks": list(look.marks),
        # By their steps, and by their groups.
        "places": [[mark[part] for mark in look.marks.values()] for part in (0, 1)],
        "pause": look.pause,
        "seen": look.seen,
        "devices": look.devices,
        "place": look.place,
        "held_ms": look.held_ms,
        "works": look.works,
    }
    return json.dumps(found)
