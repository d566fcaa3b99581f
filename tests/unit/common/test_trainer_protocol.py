"""The protocol of launchers and ranks: what it consists of has a number."""

import hashlib
import typing
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum

from everstep_common import launcher_messages, rank_messages
from everstep_common.bounds import bound_of
from everstep_common.hints import hints_of, present_of
from everstep_common.version import TRAINER_PROTOCOL

# What was said under each number. An older agent ends the connection at a field that it does not
# know: whoever changes a message raises TRAINER_PROTOCOL and adds a line here.
_SAID = {15: "01d7ae7d6bb5fb6b", 16: "cda63bf6048df6db", 17: "52c8ed97cf7c85c8"}


def _shapes(hint: object) -> Iterator[str]:
    """Yield what a type is written as, and what the records in it are written as."""
    kind, _ = bound_of(hint)
    if isinstance(kind, type) and is_dataclass(kind):
        for name, field in hints_of(kind).items():
            yield f"{kind.__name__}.{name}"
            yield from _shapes(field)
    elif present := present_of(kind):
        yield "or none"
        yield from _shapes(present)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        yield from sorted(f"{kind.__name__}={one.value}" for one in kind)
    elif inner := typing.get_args(kind):
        yield str(typing.get_origin(kind))
        for one in inner:
            yield from _shapes(one)
    else:
        yield str(kind)


def _digest(kinds: tuple[type, ...]) -> str:
    shapes = sorted({" ".join((kind.__name__, *_shapes(kind))) for kind in kinds})
    return hashlib.sha256("\n".join(shapes).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class StepSeen(launcher_messages.StepSeen):
    """A message with one more field."""

    more: bool = False


def test_messages_of_launchers_and_ranks_are_those_of_their_number() -> None:
    launcher: tuple[type, ...] = (*launcher_messages.FROM_LAUNCHER, *launcher_messages.TO_LAUNCHER)
    trainer: tuple[type, ...] = (*rank_messages.FROM_TRAINER, *rank_messages.TO_TRAINER)
    assert _SAID.get(TRAINER_PROTOCOL) == _digest((*launcher, *trainer))


def test_one_more_field_is_another_protocol() -> None:
    assert _digest((launcher_messages.Join, StepSeen)) != _digest(
        (launcher_messages.Join, launcher_messages.StepSeen)
    )
