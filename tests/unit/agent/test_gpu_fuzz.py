"""Whatever the GPU probe's process says, and whatever a reading holds: no crash, no silence."""

import json
from dataclasses import fields
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.gpus.reading import GpuReading, GpusReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.probes.gpus.nvml_answers import Answers, NonsenseError
from everstep_common.clock import Stamp
from everstep_common.judging.judgement import Faulty, Healthy, Unknown

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_NAMES = [field.name for field in fields(GpuReading)]
_HEADS = ["id", "gpus", "driver", "absent", "complete", "event", "no_events", "spent_s"]
_FIRST = {"index": 0, "uuid": "GPU-0", "name": "H100", "pci": "0000:3b:00.0"}


@given(st.binary(max_size=200))
def test_bytes_are_an_answer_or_nonsense(line: bytes) -> None:
    _take(Answers(), line)


@given(st.dictionaries(st.sampled_from(_HEADS), _JSON))
def test_an_answer_with_anything_in_it_is_an_answer_or_nonsense(said: dict[str, object]) -> None:
    _take(Answers(), json.dumps(said).encode())


@given(st.dictionaries(st.sampled_from([*_NAMES, "other"]), _JSON))
def test_a_change_to_anything_is_a_reading_or_nonsense(change: dict[str, object]) -> None:
    answers = Answers()
    answers.read_line(json.dumps({"id": 1, "gpus": [_FIRST]}).encode())
    _take(answers, json.dumps({"id": 2, "gpus": [change]}).encode())


def _take(answers: Answers, line: bytes) -> None:
    try:
        answer = answers.read_line(line)
    except NonsenseError:
        return
    for gpu in answer.reading.gpus if answer.reading else ():
        for name, kind in get_type_hints(GpuReading).items():
            plain = get_args(kind) if isinstance(kind, UnionType) else (kind,)
            allowed = tuple(get_origin(one) or one for one in plain)
            assert isinstance(getattr(gpu, name), allowed), name


def _values(kind: object) -> st.SearchStrategy[object]:
    if isinstance(kind, UnionType):
        return st.one_of([_values(one) for one in get_args(kind)])
    if kind is int:
        return st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20)
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if get_origin(kind) is tuple:
        return st.lists(_values(get_args(kind)[0]), max_size=3).map(tuple)
    return st.from_type(kind)  # type: ignore[arg-type]


_READINGS = st.builds(
    GpuReading, **{name: _values(kind) for name, kind in get_type_hints(GpuReading).items()}
)


@given(st.lists(st.lists(_READINGS, max_size=3), min_size=1, max_size=4), st.booleans())
def test_no_reading_breaks_a_detector(looks: list[list[GpuReading]], complete: bool) -> None:
    detector = GpuDetector(GpuLimits(), Counters(), expected=2)
    for second, gpus in enumerate(looks):
        reading = GpusReading(gpus=tuple(gpus), complete=complete, dead_pids=(1,))
        for judgement in detector.judge(reading, 2, Stamp("boot", second * 10**9, second)):
            assert isinstance(judgement, Faulty | Healthy | Unknown)


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"null", b"{" * 100_000, b'{"id": 1e999}'])
def test_short_and_deep_lines_are_nonsense_or_nothing(line: bytes) -> None:
    _take(Answers(), line)
