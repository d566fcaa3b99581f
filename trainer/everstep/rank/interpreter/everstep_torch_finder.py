"""Finder of torch's import: a rank without torch.distributed pays for nothing else.

Run by any Python from 3.8 on, as it starts.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # as typing's, whose import takes milliseconds, as that of __future__ some
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

_MODULE = "torch.distributed.distributed_c10d"


class TorchFinder:
    """Finder of imports that finds nothing itself, and wraps what makes process groups."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return None; for the one module, the spec that the other finders have for it."""
        if name != _MODULE:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._wrap_loader(spec)
                return spec
        return None

    def _wrap_loader(self, spec: "ModuleSpec") -> None:
        loader: Any = spec.loader
        execute: Callable[[ModuleType], None] = loader.exec_module

        def execute_and_wrap(module: "ModuleType") -> None:
            del loader.exec_module
            execute(module)
            self._wrap(module)

        try:
            loader.exec_module = execute_and_wrap
        except AttributeError:  # a loader of a frozen application
            return

    def _wrap(self, module: "ModuleType") -> None:
        sys.path.insert(0, self._folder)
        try:
            from everstep_frontier_watch import start  # type: ignore[import-not-found]
            from everstep_rank_opening import wrap_group_making  # type: ignore[import-not-found]

            wrap_group_making(module, start)
        except Exception:  # noqa: BLE001 - a rank that cannot be read trains all the same
            return
        finally:
            sys.path.remove(self._folder)
