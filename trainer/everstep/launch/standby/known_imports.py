"""Knowledge of what ranks import: from ranks here, from other nodes' ranks, or from the script."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from everstep.launch.standby.imports import imports_of
from everstep.launch.standby.lesson_file import Learned, LessonFiles
from everstep.launch.standby.python_command import PythonCommand
from everstep_common.lessons import Lesson, is_of_one_rank, is_sound, lesson_for_others


class Knowledge:
    """Knowledge of one launcher about imports; what its own ranks have loaded counts most."""

    def __init__(self, modules: tuple[str, ...], folder: Path) -> None:
        """``modules`` are those that the user names; ``folder`` is where scripts are looked for."""
        self.files = LessonFiles()
        self._named = modules
        self._folder = folder
        self._heard: Lesson | None = None

    @property
    def is_hearsay(self) -> bool:
        """Whether standbys are made from what ranks on other nodes have loaded."""
        return self._heard is not None and not self._named and not self.files.read(0).modules

    def hear(self, lesson: Lesson) -> bool:
        """Take what ranks on other nodes have loaded; return whether that is news of any use."""
        if not is_sound(lesson) or lesson == self._heard:
            return False
        self._heard = lesson
        return self.is_hearsay

    def of(self, local_rank: int, command: PythonCommand) -> tuple[Learned, bool]:
        """Return what a local rank will load, and whether each module of it has to be there."""
        if self._named:
            return Learned(self._named, self.files.read(local_rank).environ), True
        own = self.files.read(local_rank)
        if own.modules:
            # What ranks have imported may not be importable by its name alone.
            return own, False
        text = self._text(command)
        if self._heard is None:
            return Learned(text), True
        # First as the script does it: what is loaded late may need what is loaded first.
        both = dict.fromkeys((*text, *self._heard.modules))
        return Learned(tuple(both), self._heard.variables), False

    def for_others(self, local_ranks: Iterable[int]) -> Lesson | None:
        """Return what launchers on other nodes may know; None: nothing that they could use."""
        learned = [self.files.read(local_rank) for local_rank in local_ranks]
        if not learned or self._named or _differs([one.environ for one in learned]):
            return None
        return lesson_for_others(learned[0].modules, learned[0].environ)

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
