"""Known imports of ranks: of ranks here, of other nodes' ranks, or what the script says."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from everstep.launch.standby.imports import imports_of
from everstep.launch.standby.preload_files import PreloadFiles, RecordedImports
from everstep.launch.standby.python_command import PythonCommand
from everstep_common.preload import Preload, is_of_one_rank, is_sound, preload_for_others


class KnownImports:
    """Known imports of one launcher; what its own ranks have loaded counts most."""

    def __init__(self, modules: tuple[str, ...], folder: Path) -> None:
        """``modules`` are those that the user names; ``folder`` is where scripts are looked for."""
        self.files = PreloadFiles()
        self._named = modules
        self._folder = folder
        self._received: Preload | None = None

    @property
    def is_of_other_nodes(self) -> bool:
        """Whether standbys are made from what ranks on other nodes have loaded."""
        return self._received is not None and not self._named and not self.files.read(0).modules

    def receive(self, preload: Preload) -> bool:
        """Take what ranks on other nodes have loaded; return whether that is news of any use."""
        if not is_sound(preload) or preload == self._received:
            return False
        self._received = preload
        return self.is_of_other_nodes

    def of(self, local_rank: int, command: PythonCommand) -> tuple[RecordedImports, bool]:
        """Return what a local rank will load, and whether each module of it has to be there."""
        if self._named:
            return RecordedImports(self._named, self.files.read(local_rank).environ), True
        own = self.files.read(local_rank)
        if own.modules:
            # What ranks have imported may not be importable by its name alone.
            return own, False
        text = self._text(command)
        if self._received is None:
            return RecordedImports(text), True
        # First as the script does it: what is loaded late may need what is loaded first.
        both = dict.fromkeys((*text, *self._received.modules))
        return RecordedImports(tuple(both), self._received.variables), False

    def for_others(self, local_ranks: Iterable[int]) -> Preload | None:
        """Return what launchers on other nodes may know; None: nothing that they could use."""
        recorded = [self.files.read(local_rank) for local_rank in local_ranks]
        if not recorded or self._named or _differs([one.environ for one in recorded]):
            return None
        return preload_for_others(recorded[0].modules, recorded[0].environ)

    def _text(self, command: PythonCommand) -> tuple[str, ...]:
        path = command.path(self._folder)
        if path is None:
            return ()
        return tuple(imports_of(path, path.parent if command.script else self._folder))


def _differs(environs: list[Mapping[str, str]]) -> bool:
    """Return whether ranks have set up their environments for themselves."""
    if any(is_of_one_rank(name) for name in environs[0]):
        return True
    return any(environ != environs[0] for environ in environs)
