"""Setting: a documented field of a configuration, for code that reads no files."""

import typing
from collections.abc import Callable
from dataclasses import MISSING, field


def setting(
    default: typing.Any = MISSING,  # noqa: ANN401 - dataclasses.field has the same freedom
    *,
    help: str,
    unit: str = "",
    factory: Callable[[], object] | None = None,
    shown: str = "",
) -> typing.Any:  # noqa: ANN401
    """Declare a documented field: what it does, its unit, and the reason for its default.

    ``shown`` is the default in words, for one that differs from machine to machine.
    """
    metadata = {"help": help, "unit": unit, "shown": shown}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)
