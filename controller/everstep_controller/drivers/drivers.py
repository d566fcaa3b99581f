"""Isolation drivers: each with its part of the configuration, which makes it.

A new driver is a class here with its configuration, and a field of ``DriversConfig`` in ``parts``.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from everstep_common.config import setting
from everstep_common.printable import printable
from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.port import Applied, DriverError, DriverView, IsolationDriver
from everstep_controller.drivers.program import run_program
from everstep_controller.drivers.worker import DriverTiming

_SHOWN_MAX = 200

T = TypeVar("T")


class DriverConfig(Protocol):
    """One driver's part of the configuration."""

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        ...

    def driver(self) -> IsolationDriver | None:
        """Return the driver; None where it is not configured."""
        ...


# --- without a scheduler -------------------------------------------------------------------------


class BuiltInDriver:
    """Driver without a scheduler: each wish holds at once, for the core looks at claims itself."""

    def __init__(self, remembered: Mapping[str, Hold]) -> None:
        self._holds = dict(remembered)

    async def read(self) -> DriverView:
        """See IsolationDriver."""
        return DriverView(dict(self._holds))

    async def apply(self, wanted: Sequence[WantedIsolation]) -> Applied:
        """See IsolationDriver."""
        for one in wanted:
            if one.withheld:
                self._holds[one.node] = Hold(one.reason, ours=True)
            else:
                self._holds.pop(one.node, None)
        return Applied({one.node: self._holds.get(one.node) for one in wanted})


# --- a program of the site -----------------------------------------------------------------------


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

    def driver(self) -> IsolationDriver | None:
        """See DriverConfig."""
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
      free.

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
        return Applied(answer.now, answer.failures)

    async def _run(self, request: _Request) -> bytes:
        return await run_program(self._argv, msgspec.json.encode(request))


def _answer(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        shown = printable(body[:_SHOWN_MAX].decode(errors="replace"))
        what = f"its answer cannot be used: {error}; it begins with {shown!r}"
        raise DriverError(what) from error


# --- all of them ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DriversConfig:
    """Schedulers that place work on the nodes too, and are told which to leave alone."""

    call_timeout_s: float = setting(
        30.0,
        unit="s",
        help="Deadline of a driver's call; then it has failed and is tried again. A busy "
        "scheduler answers in seconds.",
    )
    read_interval_s: float = setting(
        60.0,
        unit="s",
        help="How often each scheduler is read for nodes that others withhold or free: a node "
        "that somebody drained there may get ranks here for as long.",
    )
    command: CommandDriverConfig = setting(
        factory=CommandDriverConfig, help="A program of the site."
    )

    @property
    def parts(self) -> Mapping[str, DriverConfig]:
        """Return the part of each driver, by the name under which it is shown and journaled."""
        return {"command": self.command}

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        found = [
            f"{name}: must be above 0, got {getattr(self, name)}"
            for name in ("call_timeout_s", "read_interval_s")
            if getattr(self, name) <= 0
        ]
        for name, part in self.parts.items():
            found += [f"{name}.{problem}" for problem in part.problems()]
        return found

    def timing(self) -> DriverTiming:
        """Return the durations that hold for every driver."""
        return DriverTiming(self.call_timeout_s, self.read_interval_s)


def configured_drivers(
    config: DriversConfig, remembered: Callable[[str], Mapping[str, Hold]]
) -> dict[str, IsolationDriver]:
    """Return the drivers that are configured, by name; ``remembered``: their holds by the journal.

    The built-in one is always there, and has no scheduler that would know its holds.
    """
    made = {name: part.driver() for name, part in config.parts.items()}
    configured = {name: driver for name, driver in made.items() if driver is not None}
    return {"built-in": BuiltInDriver(remembered("built-in")), **configured}
