"""NVML answers: rebuilds full GPU readings from answers that carry only what changed."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

from everstep_agent.detectors.gpus.reading import GpuEvent, GpuReading, GpusReading
from everstep_common.codec import CodecError, from_json

_KINDS = get_type_hints(GpuReading)
_NUMBERS = {
    name: kind
    for name, kinds in _KINDS.items()
    for kind in (int, float)
    if kind in (kinds, *get_args(kinds))
}
_INT_END = 1 << 63
_READING: Callable[..., GpuReading] = GpuReading


class NonsenseError(ValueError):
    """The process said something that it cannot mean; one sentence says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """An answer without its GPUs."""

    id: int = 0
    driver: str = ""
    library: str = ""
    absent: str = ""
    absent_code: int | None = None
    complete: bool = True
    spent_s: float = 0.0
    no_events: str = ""
    event: GpuEvent | None = None


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """Meaning of one line: the answer to request ``id``, or an event, or neither."""

    id: int
    reading: GpusReading | None = None
    event: GpuEvent | None = None


class Answers:
    """Everything that one process has said of its GPUs so far."""

    def __init__(self) -> None:
        self._gpus: tuple[GpuReading, ...] | None = None
        self._driver = ""
        self._library = ""
        self._no_events = ""

    def read_line(self, line: bytes) -> NvmlAnswer:
        """Return the meaning of one line. Raises NonsenseError."""
        try:
            return self._take(json.loads(line, parse_constant=_refuse))
        except (ValueError, CodecError, RecursionError) as error:
            raise NonsenseError(f"{error!s:.200}") from error

    def _take(self, said: object) -> NvmlAnswer:
        if not isinstance(said, dict):
            raise NonsenseError("a line that is no object")
        changes = said.pop("gpus", None)
        head = from_json(_Head, said, "answer")
        if "no_events" in said:
            self._no_events = head.no_events
        if head.absent:
            absent = GpusReading(absent=head.absent, absent_code=head.absent_code)
            return NvmlAnswer(head.id, reading=absent)
        if changes is None:
            return NvmlAnswer(0, event=head.event)
        self._driver = head.driver or self._driver
        self._library = head.library or self._library
        self._gpus = _changed(self._gpus, changes)
        return NvmlAnswer(head.id, reading=self._reading(head))

    def _reading(self, head: _Head) -> GpusReading:
        return GpusReading(
            driver=self._driver,
            library=self._library,
            gpus=tuple(_shown(gpu) for gpu in self._gpus or ()),
            complete=head.complete,
            no_events=self._no_events,
            spent_s=head.spent_s,
        )


def _refuse(constant: str) -> object:
    raise NonsenseError(f"{constant} is no reading")


def _changed(known: Sequence[GpuReading] | None, changes: object) -> tuple[GpuReading, ...]:
    """Return the readings with what changed; the first answer of all has everything."""
    if not isinstance(changes, list):
        raise NonsenseError("GPUs that are no list")
    if known is None:
        return from_json(tuple[GpuReading, ...], changes, "gpus")
    if len(changes) != len(known):
        raise NonsenseError(f"{len(changes)} GPUs where there were {len(known)}")
    return tuple(_patched(gpu, change) for gpu, change in zip(known, changes, strict=True))


def _patched(known: GpuReading, change: object) -> GpuReading:
    if not change:
        return known
    if not isinstance(change, dict):
        raise NonsenseError("a GPU that is no object")
    if unknown := change.keys() - _KINDS.keys():
        raise NonsenseError(f"unknown fields of a GPU: {', '.join(sorted(unknown))}")
    new = {name: _converted(name, value) for name, value in change.items()}
    values = {name: new[name] if name in new else getattr(known, name) for name in _KINDS}
    # Not dataclasses.replace, which takes three times as long; this is done eight times a second.
    return _READING(**values)


def _converted(name: str, value: object) -> object:
    """Return one value as its field wants it; by far the most are numbers that fit as they are."""
    wanted = _NUMBERS.get(name)
    if type(value) is int and -_INT_END <= value < _INT_END:
        if wanted is int:
            return value
        if wanted is float:
            return float(value)
    elif type(value) is float and wanted is float:
        return value
    return from_json(_KINDS[name], value, name)


def _shown(gpu: GpuReading) -> GpuReading:
    """Return a reading without what a GPU that gives no answer said before."""
    if not gpu.error:
        return gpu
    return GpuReading(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        pci=gpu.pci,
        memory_bytes=gpu.memory_bytes,
        vbios=gpu.vbios,
        inforom=gpu.inforom,
        error=gpu.error,
        error_code=gpu.error_code,
    )
