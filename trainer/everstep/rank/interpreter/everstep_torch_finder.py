"""Finder of imports: of torch's process groups, and of what a rank hears of other ranks by.

A rank that imports neither pays for nothing else.
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
# By one of these a process waits for others; a Python that imports none of them is no rank yet.
_OF_PEERS = frozenset(
    (_MODULE, "socket", "mpi4py", "jax", "tensorflow", "paddle", "cupy", "mxnet", "horovod")
)


class TorchFinder:
    """Finder of imports that finds nothing itself, and wraps what makes process groups."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._watches_gil = False

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """Return None; for the one module, the spec that the other finders have for it."""
        if name in _OF_PEERS and not self._watches_gil:
            self._watches_gil = True
            self.watch_gil()
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

    def watch_gil(self) -> None:
        """Have a thread tell that the Python of this rank runs, if the rank has a page."""
        sys.path.insert(0, self._folder)
        try:
            from everstep_gil_watch import start  # type: ignore[import-not-found]

            start()
        except Exception:  # noqa: BLE001 - a rank without a page trains all the same
            return
        finally:
            sys.path.remove(self._folder)

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
            from everstep_exit_dump import dump_at_exit  # type: ignore[import-not-found]
            from everstep_frontier_watch import start  # type: ignore[import-not-found]
            from everstep_rank_opening import wrap_group_making  # type: ignore[import-not-found]

            wrap_group_making(module, start)
            dump_at_exit()
        except Exception:  # noqa: BLE001 - a rank that cannot be read trains all the same
            return
        finally:
            sys.path.remove(self._folder)
