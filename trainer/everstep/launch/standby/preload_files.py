"""Preload files: memory files in which ranks record their imports, which standbys repeat."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from everstep.rank.import_recorder import NAME
from everstep.rank.interpreter.everstep_rank_opening import SET_HERE

_BYTES_MAX = 4 * 1024 * 1024
# The launcher gives these to each generation anew; what a script makes of them is its own business.
_OF_A_GENERATION = ("EVERSTEP_", "TORCHELASTIC_", "MASTER_", "ROLE_", "GROUP_")
_PLACES = frozenset({"RANK", "WORLD_SIZE", "NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
# What is set within a rank, but not by its script: by the interpreter in the C locale (PEP 538),
# and where a rank makes its first process group.
_NOT_OF_SCRIPTS = frozenset({"LC_CTYPE"}) | SET_HERE


@dataclass(frozen=True, slots=True)
class RecordedImports:
    """Modules in their order of import, and variables that were set before some of them."""

    modules: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


class PreloadFiles:
    """Memory files that ranks inherit, each its own, for a script may give each its own device."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        # What each local rank was started with last.
        self._given: dict[int, Mapping[str, str]] = {}

    def descriptor(self, local_rank: int) -> int:
        """Return where a local rank writes. Raises OSError."""
        if local_rank not in self._descriptors:
            self._descriptors[local_rank] = os.memfd_create(NAME, os.MFD_CLOEXEC)
        return self._descriptors[local_rank]

    def begins(self, local_rank: int, environ: Mapping[str, str]) -> None:
        """Know what a local rank is started with."""
        self._given[local_rank] = environ

    def read(self, local_rank: int) -> RecordedImports:
        """Return what a local rank wrote last; nothing while it has written nothing."""
        if local_rank not in self._descriptors:
            return RecordedImports()
        content = os.pread(self._descriptors[local_rank], _BYTES_MAX, 0)
        given = self._given.get(local_rank, {})
        try:
            recorded = json.loads(content)
            modules = tuple(name for name in recorded["modules"] if isinstance(name, str))
            environ = {
                name: value
                for name, value in recorded["environ"].items()
                if isinstance(value, str) and given.get(name) != value and _lasts(name)
            }
        except (ValueError, KeyError, TypeError, AttributeError):  # none, or half of one
            return RecordedImports()
        return RecordedImports(modules, environ)

    def close(self) -> None:
        """Free the memory; ranks may still have it open."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()


def _lasts(name: str) -> bool:
    other = name in _PLACES or name in _NOT_OF_SCRIPTS
    return not other and not name.startswith(_OF_A_GENERATION)
