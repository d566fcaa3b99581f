"""Command driver: a program of the site, which speaks JSON on its standard input and output."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from everstep_common.config import setting
from everstep_common.printable import printable
from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.port import (
    Applied,
    DriverContext,
    DriverError,
    DriverView,
    IsolationDriver,
)
from everstep_controller.drivers.program import run_program

_SHOWN_MAX = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDriverConfig:
    """The program that isolates nodes at the site's scheduler."""

    argv: tuple[str, ...] = setting(
        (),
        help="The program, by its absolute path, and its arguments; there is no shell. It "
        "reads and writes JSON, see docs/operations.md. Empty: no driver.",
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        if self.argv and not os.path.isabs(self.argv[0]):
            return [f"argv: expected a program by its absolute path, got {self.argv[0]!r}"]
        return []

    def driver(self, context: DriverContext) -> IsolationDriver | None:
        """See DriverConfig."""
        del context  # a program that is cut short ends, whatever it waits for
        return CommandDriver(self.argv) if self.argv else None


class _WantedNode(msgspec.Struct):
    withheld: bool
    owners: tuple[str, ...]
    reason: str


class _Request(msgspec.Struct, omit_defaults=True):
    call: str
    wanted: dict[str, _WantedNode] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ReadAnswer:
    holds: Mapping[str, Hold]
    down: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ApplyAnswer:
    now: Mapping[str, Hold | None]
    failures: Mapping[str, str] = field(default_factory=dict)
    unmanaged: frozenset[str] = frozenset()


class CommandDriver:
    """Driver that runs a program of the site, which speaks to whatever scheduler it has.

    The program gets one JSON document on its standard input for each call, and answers with one on
    its standard output and exit code 0:

    * ``{"call": "read"}`` → ``{"holds": {"n1": {"reason": "fan", "ours": false}, …}}``: every node
      that the scheduler withholds. ``ours`` tells what this program withheld for Everstep. With
      ``"down": {"n2": "DOWN*: not responding"}`` it may name nodes that do not answer it either.
    * ``{"call": "apply", "wanted": {"n1": {"withheld": true, "owners": ["automation"], "reason":
      "automation: Xid 79"}, "n2": {"withheld": false, …}}}`` → ``{"now": {"n1": {"reason": …,
      "ours": true}, "n2": null}, "failures": {"n3": "why"}}``: what is so now for each, null being
      free. With ``"unmanaged": ["n4"]`` it may name nodes that are none of its scheduler's.

    Another exit code is a failure of the whole call, with the last line of its standard error.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = tuple(argv)

    async def read(self) -> DriverView:
        """See IsolationDriver. Raises DriverError, OSError."""
        answer = _answer(await self._run(_Request("read")), _ReadAnswer)
        return DriverView(answer.holds, answer.down)

    async def apply(self, wanted: Sequence[WantedIsolation]) -> Applied:
        """See IsolationDriver. Raises DriverError, OSError."""
        nodes = {one.node: _WantedNode(one.withheld, one.owners, one.reason) for one in wanted}
        answer = _answer(await self._run(_Request("apply", nodes)), _ApplyAnswer)
        return Applied(answer.now, answer.failures, answer.unmanaged)

    async def _run(self, request: _Request) -> bytes:
        return await run_program(self._argv, msgspec.json.encode(request))


def _answer(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        shown = printable(body[:_SHOWN_MAX].decode(errors="replace"))
        what = f"its answer cannot be used: {error}; it begins with {shown!r}"
        raise DriverError(what) from error
