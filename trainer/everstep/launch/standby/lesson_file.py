"""Where a rank writes what its standbys should load: memory that ends with the launcher."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from everstep.lesson import NAME

_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Learned:
    """Modules in their order of import, and variables that were set before some of them."""

    modules: tuple[str, ...] = ()
    environ: Mapping[str, str] | None = None


class LessonFile:
    """A memory file that ranks inherit; the launcher reads it when the next standbys are made."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC)

    def read(self, given: Mapping[str, str]) -> Learned:
        """Return what the last rank wrote; ``given`` are the variables that it was started with."""
        content = os.pread(self.descriptor, _BYTES_MAX, 0)
        try:
            lesson = json.loads(content)
            modules = tuple(name for name in lesson["modules"] if isinstance(name, str))
            environ = {
                name: value
                for name, value in lesson["environ"].items()
                if isinstance(value, str) and given.get(name) != value
            }
        except (ValueError, KeyError, TypeError, AttributeError):  # none, or half of one
            return Learned()
        return Learned(modules, environ)

    def close(self) -> None:
        """Free the memory; ranks may still have it open."""
        os.close(self.descriptor)
