"""Setting: a documented field of a configuration, for code that reads no files."""

import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field

_NANOSECONDS = 1_000_000_000
# What is stored has 64 bits, one of them a sign.
_LONGEST_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a number in a file; None: no such bound."""

    above: float | None = None
    least: float | None = None
    most: float | None = None

    def problem(self, value: float) -> str:
        """Return which of them a number breaks; empty for none."""
        if self.above is not None and value <= self.above:
            return f"must be above {self.above}, got {value}"
        low = self.least is not None and value < self.least
        if not low and (self.most is None or value <= self.most):
            return ""
        if self.most is None:
            return f"must not be below {self.least}, got {value}"
        if self.least is None:
            return f"must be at most {self.most}, got {value}"
        return f"must be from {self.least} to {self.most}, got {value}"


@dataclass(frozen=True, slots=True)
class Declared:
    """What is declared of a field besides its type and its default."""

    help: str = ""
    unit: str = ""
    # The default in words, for one that differs from machine to machine.
    shown: str = ""
    bounds: Bounds = Bounds()
    # Seconds in a file, and nanoseconds in the field.
    is_duration: bool = False


_DECLARED, _NOTHING = "declared", Declared()


def setting(
    default: typing.Any = MISSING,  # noqa: ANN401 - dataclasses.field has the same freedom
    *,
    help: str,
    unit: str = "",
    factory: Callable[[], object] | None = None,
    shown: str = "",
    bounds: Bounds = _NOTHING.bounds,
) -> typing.Any:  # noqa: ANN401
    """Declare a documented field: what it does, its unit, and the reason for its default.

    ``shown`` is the default in words, for one that differs from machine to machine.
    """
    metadata = {_DECLARED: Declared(help, unit, shown, bounds)}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def positive(default: float, *, help: str, unit: str = "", most: float | None = None) -> typing.Any:  # noqa: ANN401
    """Declare a documented number that has to be above 0; the reading of a file sees to that."""
    return setting(default, help=help, unit=unit, bounds=Bounds(above=0, most=most))


def not_negative(
    default: float, *, help: str, unit: str = "", most: float | None = None
) -> typing.Any:  # noqa: ANN401
    """Declare a documented number that must not be below 0."""
    return setting(default, help=help, unit=unit, bounds=Bounds(least=0, most=most))


def duration(default_s: float, *, help: str, above: float | None = None) -> typing.Any:  # noqa: ANN401 - dataclasses.field has the same freedom
    """Declare a documented duration: ``patience_ns`` of the program, ``patience_s`` in the file.

    Its default is given in seconds, as in the file. It is never below 0, and may have to be above.
    """
    bounds = Bounds(least=0) if above is None else Bounds(above)
    metadata = {_DECLARED: Declared(help, "s", bounds=bounds, is_duration=True)}
    return field(default=nanoseconds(default_s), metadata=metadata)


def declared(of: typing.Any) -> Declared:  # noqa: ANN401 - dataclasses.Field of whatever type
    """Return what is declared of a field."""
    return typing.cast("Declared", of.metadata.get(_DECLARED, _NOTHING))


def nanoseconds(seconds: float) -> int:
    """Return a time in whole nanoseconds. Raises OverflowError for more than can be stored."""
    found = round(seconds * _NANOSECONDS)
    if found > _LONGEST_NS:
        raise OverflowError(f"{seconds} s are more than {_LONGEST_NS} ns")
    return found


def seconds(nanoseconds: int) -> float:
    """Return a time in seconds, as a file has it."""
    return nanoseconds / _NANOSECONDS
